"""Packs a block for a store of another project: a header that says what it is, then its payload.

An entry is served only if its header has the name and the layout that were asked for, and if the
checksum over header and payload is right.
"""

import hashlib
import struct
from typing import Final

from pagewire_shared.kv.checksum import crc32c, joined_crc32c
from pagewire_worker.offload.connector import BlockLayout
from pagewire_worker.offload.layout_convert import layout_to_message

LAYOUT_BYTES: Final = 16
NAME_BYTES: Final = 16
_MAGIC: Final = b"PWBLOCK1"
# Magic, layout, name, length of the payload; then the checksum, and zeros up to 64 bytes.
_FACTS: Final = struct.Struct(f"<8s{LAYOUT_BYTES}s{NAME_BYTES}sQ")
_CHECKSUM: Final = struct.Struct("<I12x")
HEADER_BYTES: Final = _FACTS.size + _CHECKSUM.size


def layout_digest(layout: BlockLayout) -> bytes:
    """Return the digest that stands for a layout in keys and headers."""
    message = layout_to_message(layout.of_one_group).SerializeToString(deterministic=True)
    return hashlib.sha256(message).digest()[:LAYOUT_BYTES]


def pack(layout: bytes, name: bytes, payload: memoryview, target: memoryview) -> int:
    """Copy a block with its header to the beginning of `target`, and return the length of both.

    The checksum comes first: a payload that changes meanwhile is found damaged when it is read.
    """
    size = HEADER_BYTES + len(payload)
    facts = _FACTS.pack(_MAGIC, layout, name, len(payload))
    checksum = joined_crc32c(crc32c(facts), crc32c(payload), len(payload))
    target[: len(facts)] = facts
    target[len(facts) : HEADER_BYTES] = _CHECKSUM.pack(checksum)
    target[HEADER_BYTES:size] = payload
    return size


def unpack(layout: bytes, name: bytes, data: memoryview) -> memoryview | None:
    """Return the payload in `data`, or None if it is not intact, or not that of this block."""
    if len(data) < HEADER_BYTES:
        return None
    facts, payload = data[: _FACTS.size], data[HEADER_BYTES:]
    if facts != _FACTS.pack(_MAGIC, layout, name, len(payload)):
        return None
    checksum = joined_crc32c(crc32c(facts), crc32c(payload), len(payload))
    return payload if data[_FACTS.size : HEADER_BYTES] == _CHECKSUM.pack(checksum) else None
