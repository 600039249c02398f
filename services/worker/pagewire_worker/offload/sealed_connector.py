"""Seals blocks on their way to any store, and opens those that come from one.

A seal is a keyed BLAKE3 over the layout, the name and the bytes of a block, and stands behind the
bytes. A store and its disks and Redis hold blocks and not the key, so what they make or change is
not used: a block without its seal is a missing block.
"""

import asyncio
import hmac
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, cast

from blake3 import blake3

from pagewire_shared.identity.ids import short
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import (
    BlockLayout,
    BlockPlacement,
    CopyingConnector,
    KvConnector,
    LoadedBlock,
    OutgoingBlock,
)
from pagewire_worker.offload.layout_convert import layout_to_message
from pagewire_worker.offload.seal_log import SealLog

NUM_SEAL_BYTES: Final = 16
INLINE_BYTES: Final = 256 * 1024
"""Sealed in less time than another thread takes to start."""
_CONTEXT: Final = b"pagewire kv seal 1"


class SealedConnector:
    """A connector whose blocks have seals.

    Args:
        inner: Moves the sealed blocks.
        keys: 32 bytes each; the first one seals.
    """

    def __init__(self, inner: KvConnector, keys: Sequence[bytes]) -> None:
        self._inner = inner
        self._keys = keys
        self._layout = b""
        self._log = SealLog()

    @property
    def store_id(self) -> bytes:
        """As that of the inner connector."""
        return self._inner.store_id

    @property
    def outside_store(self) -> str:
        """As that of the inner connector."""
        return getattr(self._inner, "outside_store", "")

    async def register(self, layout: BlockLayout, addresses: Sequence[str]) -> None:
        """Take the stores, for blocks that are longer by a seal."""
        encoded = layout_to_message(layout.of_one_group).SerializeToString(deterministic=True)
        self._layout = blake3(encoded).digest()
        await self._inner.register(replace(layout, num_seal_bytes=NUM_SEAL_BYTES), addresses)

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """Seal blocks and put them."""
        return await self._inner.put(await asyncio.to_thread(self._sealed, blocks))

    async def missing(self, blocks: Sequence[tuple[bytes, BlockPlacement]]) -> frozenset[bytes]:
        """As the inner connector, which has to place blocks."""
        return await cast(CopyingConnector, self._inner).missing(blocks)

    def _sealed(self, blocks: Sequence[OutgoingBlock]) -> list[OutgoingBlock]:
        made = []
        for block in blocks:
            size = len(block.payload)
            payload = bytearray(size + NUM_SEAL_BYTES)
            payload[:size] = block.payload
            payload[size:] = self._seal(self._keys[0], block.name, memoryview(payload)[:size])
            made.append(replace(block, payload=memoryview(payload)))
        return made

    async def get(
        self, address: str, names: Sequence[bytes], timeout_seconds: float
    ) -> AsyncGenerator[LoadedBlock, None]:
        """Yield blocks without their seals, up to the first one that has none of these keys."""
        async with aclosing(self._inner.get(address, names, timeout_seconds)) as blocks:
            async for block in blocks:
                if len(block.payload) <= INLINE_BYTES:
                    opened = self._opened(block)
                else:
                    opened = await asyncio.to_thread(self._opened, block)
                if opened is None:
                    metrics.DAMAGED_BLOCKS.labels("seal").inc()
                    self._log.refused(short(block.name), address, block.tier)
                    return
                yield opened

    def _opened(self, block: LoadedBlock) -> LoadedBlock | None:
        payload = memoryview(block.payload)
        data, seal = payload[:-NUM_SEAL_BYTES], payload[-NUM_SEAL_BYTES:]
        for key in self._keys:
            if hmac.compare_digest(self._seal(key, block.name, data), seal):
                return replace(block, payload=data)
        return None

    def _seal(self, key: bytes, name: bytes, data: memoryview) -> bytes:
        made = blake3(_CONTEXT, key=key)
        # All parts but the last have one length, so that no two blocks have the same text.
        made.update(self._layout).update(name).update(data)
        return made.digest(NUM_SEAL_BYTES)

    async def close(self) -> None:
        """Close the inner connector."""
        await self._inner.close()
