"""The one chained content hash that names KV blocks.

A name is the first 16 bytes of SHA-256 over a canonical encoding: a version byte, then every field
preceded by its length as little-endian u32, token ids as little-endian u32. Two blocks have one
name only if model, cache layout, tenant salt, adapter, everything before them and their own tokens
agree.
"""

import hashlib
import struct
from collections.abc import Sequence

from pagewire_shared.arrays import pack_u32
from pagewire_shared.ids import BlockName

HASH_VERSION = 1


def _encode(*parts: bytes) -> bytes:
    return bytes([HASH_VERSION]) + b"".join(struct.pack("<I", len(p)) + p for p in parts)


def root_name(
    *,
    model_fingerprint: bytes,
    layout_fingerprint: bytes,
    dtype: str,
    salt: bytes = b"",
    adapter: bytes = b"",
) -> BlockName:
    """Return the name that stands for "nothing before": the parent of every first block.

    Args:
        model_fingerprint: SHA-256 of configuration and weights, 32 bytes.
        layout_fingerprint: Hash of the cache groups, see `layout_fingerprint`.
        dtype: Element type of the cache, such as "float32".
        salt: Tenant salt; requests share blocks only under equal salts.
        adapter: Content id of a LoRA adapter; empty for none.
    """
    encoded = _encode(b"root", model_fingerprint, layout_fingerprint, dtype.encode(), salt, adapter)
    return BlockName(hashlib.sha256(encoded).digest()[:16])


def block_name(parent: BlockName, token_ids: Sequence[int]) -> BlockName:
    """Return the name of a full block with `token_ids` after the block named `parent`."""
    encoded = _encode(b"block", parent, pack_u32(token_ids))
    return BlockName(hashlib.sha256(encoded).digest()[:16])


def layout_fingerprint(groups: Sequence[tuple[int, int, int, int, int, int, str]]) -> bytes:
    """Return 16 bytes for (kind, layers, block size, bytes per block, shard, shards, dtype) per
    group."""
    parts = [
        struct.pack("<IIIQII", kind, layers, size, num_bytes, shard, shards) + dtype.encode()
        for kind, layers, size, num_bytes, shard, shards, dtype in groups
    ]
    return hashlib.sha256(_encode(b"layout", *parts)).digest()[:16]
