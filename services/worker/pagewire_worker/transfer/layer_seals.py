"""Seals layers on their way to another worker, by the keys that seal blocks in stores.

A seal is a keyed BLAKE3 over the layout, the names of the blocks, the range of layers and their
bytes. Without the key nothing is believed that answers a pull, or writes to the staging memory.
"""

import asyncio
import hmac
import struct
from collections.abc import Sequence
from typing import Final

from blake3 import blake3

from pagewire_shared.kv.layers_convert import LayerRange, Part
from pagewire_worker.host.key_file import read_keys
from pagewire_worker.offload.connector import BlockLayout
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.offload.seal_log import SealLog
from pagewire_worker.offload.sealed_connector import INLINE_BYTES, NUM_SEAL_BYTES

_CONTEXT: Final = b"pagewire kv layers 1"


class LayerSeals:
    """Makes and checks seals of layers of one layout.

    Args:
        keys: 32 bytes each; the first one seals, and all of them open.
        layout: As encoded.
    """

    def __init__(self, keys: Sequence[bytes], layout: bytes) -> None:
        self._keys = keys
        self._layout = blake3(layout).digest()
        self.log = SealLog()

    async def make(
        self, names: Sequence[bytes], covered: LayerRange, parts: Sequence[Part]
    ) -> bytes:
        """Return the seal of some layers; `names` are those of exactly these blocks."""
        return await self._seal(self._keys[0], names, covered, parts)

    async def is_right(
        self, names: Sequence[bytes], covered: LayerRange, parts: Sequence[Part], seal: bytes
    ) -> bool:
        """Return whether one of the keys has made a seal."""
        for key in self._keys:
            if hmac.compare_digest(await self._seal(key, names, covered, parts), seal):
                return True
        return False

    async def _seal(
        self, key: bytes, names: Sequence[bytes], covered: LayerRange, parts: Sequence[Part]
    ) -> bytes:
        if sum(len(part) for part in parts) <= INLINE_BYTES:
            return self._digest(key, names, covered, parts)
        return await asyncio.to_thread(self._digest, key, names, covered, parts)

    def _digest(
        self, key: bytes, names: Sequence[bytes], covered: LayerRange, parts: Sequence[Part]
    ) -> bytes:
        made = blake3(_CONTEXT, key=key)
        # Of all parts but the last the length is known before, so that no two have the same text.
        fields = (covered.first_block, covered.num_blocks, covered.first_layer, covered.num_layers)
        made.update(self._layout).update(struct.pack("<4I", *fields)).update(b"".join(names))
        for part in parts:
            made.update(part)
        return made.digest(NUM_SEAL_BYTES)


def seals_by(keys: Sequence[bytes], layout: BlockLayout) -> LayerSeals | None:
    """Return the seals by some keys; None without any."""
    encoded = layout_to_message(layout).SerializeToString(deterministic=True)
    return LayerSeals(keys, encoded) if keys else None


def seals_of(path: str, layout: BlockLayout) -> LayerSeals | None:
    """Return the seals by the keys in a file; None without one. Raises StartupError."""
    return seals_by(read_keys(path) if path else (), layout)
