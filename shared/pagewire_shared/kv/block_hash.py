"""The chained content hash that names KV blocks.

A name is the first 16 bytes of SHA-256 over a canonical encoding: a version byte, then every field
preceded by its length as little-endian u32, token ids as little-endian u32. Two blocks have the
same name only if model, cache layout, tenant salt, adapter, all earlier tokens and their own tokens
agree.
"""

import hashlib
import struct
from collections.abc import Sequence

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.arrays import pack_u32

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
    """Return the root name: the parent of every first block.

    Args:
        model_fingerprint: SHA-256 of configuration and weights, 32 bytes.
        layout_fingerprint: Hash of the cache groups, see `layout_fingerprint`.
        dtype: Element type of the cache, such as "float32".
        salt: Tenant salt; requests share blocks only under equal salts.
        adapter: Content id of a LoRA adapter; empty for none.
    """
    encoded = _encode(b"root", model_fingerprint, layout_fingerprint, dtype.encode(), salt, adapter)
    return BlockName(hashlib.sha256(encoded).digest()[:16])


def tenant_salt(tenant: str, cache_salt: bytes) -> bytes:
    """Return tenant and salt joined, with the length first, so that no two pairs are equal."""
    if not tenant and not cache_salt:
        return b""
    encoded = tenant.encode()
    return struct.pack("<I", len(encoded)) + encoded + cache_salt


def block_name(parent: BlockName, token_ids: Sequence[int]) -> BlockName:
    """Return the name of a full block with `token_ids` after the block named `parent`."""
    encoded = _encode(b"block", parent, pack_u32(token_ids))
    return BlockName(hashlib.sha256(encoded).digest()[:16])


def block_names(parent: BlockName, token_ids: bytes, block_size: int) -> bytes:
    """Return the names of consecutive full blocks after the block named `parent`, 16 bytes each.

    Args:
        token_ids: Little-endian u32; tokens after the last full block are left out.
    """
    size = 4 * block_size
    head = _encode(b"block") + struct.pack("<I", len(parent))
    length = struct.pack("<I", size)
    names = []
    for start in range(0, len(token_ids) - size + 1, size):
        encoded = head + parent + length + token_ids[start : start + size]
        parent = BlockName(hashlib.sha256(encoded).digest()[:16])
        names.append(parent)
    return b"".join(names)


def group_name(name: BlockName, group: int) -> BlockName:
    """Return the name in cache group `group` of the block that is `name` in group 0.

    Blocks of different groups hold different layers of the same tokens.
    """
    return BlockName(name[:-1] + bytes((name[-1] ^ group,))) if group else name


def layout_fingerprint(groups: Sequence[tuple[int, int, int, int, int, int, str]]) -> bytes:
    """Return 16 bytes for (kind, layers, block size, bytes per block, shard, shards, dtype) per
    group."""
    parts = [
        struct.pack("<IIIQII", kind, layers, size, num_bytes, shard, shards) + dtype.encode()
        for kind, layers, size, num_bytes, shard, shards, dtype in groups
    ]
    return hashlib.sha256(_encode(b"layout", *parts)).digest()[:16]
