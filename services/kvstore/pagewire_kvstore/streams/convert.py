"""Converts layouts, names, tier states and the place of the arena between messages and values."""

import hashlib
from collections.abc import Iterable, Sequence

from pagewire_kvstore.blocks.types import StoreLayout, TierState
from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import ID_BYTES, BlockName
from pagewire_shared.kv.arena import ArenaFacts

MAX_NAMES = 4096
"""Most names in one message."""

_FINGERPRINT_BYTES = 32
MAX_BLOCK_BYTES = 1 << 30
MAX_GROUPS = 64


def store_layout(message: layout_pb2.KvLayout) -> StoreLayout:
    """Return a peer's layout. Raises InvalidRequestError that names the wrong field."""
    for name in ("model_fingerprint", "numerics_fingerprint"):
        if len(getattr(message, name)) != _FINGERPRINT_BYTES:
            raise InvalidRequestError(f"{name} must have 32 bytes", field=f"layout.{name}")
    if not 1 <= len(message.groups) <= MAX_GROUPS:
        raise InvalidRequestError(f"a layout has 1 to {MAX_GROUPS} groups", field="layout.groups")
    for group in message.groups:
        if not 1 <= group.bytes_per_block <= MAX_BLOCK_BYTES:
            raise InvalidRequestError(
                f"bytes_per_block must be in [1, {MAX_BLOCK_BYTES}]", field="layout.groups"
            )
        if not group.shard < group.num_shards:
            raise InvalidRequestError("shard must be below num_shards", field="layout.groups")
    # Deterministic: messages without maps and unknown fields are encoded in one way.
    encoded = message.SerializeToString(deterministic=True)
    layout_id = hashlib.sha256(b"pagewire kv layout 1" + encoded).digest()[:16]
    return StoreLayout(layout_id, tuple(group.bytes_per_block for group in message.groups))


def tier_stats(state: TierState) -> kv_store_pb2.TierStats:
    """Return the message."""
    return kv_store_pb2.TierStats(
        tier=state.tier,
        num_blocks=state.num_blocks,
        used_bytes=state.used_bytes,
        capacity_bytes=state.capacity_bytes,
        num_hits=state.num_hits,
        num_misses=state.num_misses,
        num_corrupt=state.num_corrupt,
        num_faults=state.num_faults,
        fault=state.fault,
    )


def shared_memory(shared: ArenaFacts) -> kv_store_pb2.SharedMemory:
    """Return the message."""
    return kv_store_pb2.SharedMemory(
        path=shared.path,
        boot_id=shared.boot_id,
        device=shared.device,
        inode=shared.inode,
        num_bytes=shared.num_bytes,
    )


def split_names(data: bytes) -> list[BlockName]:
    """Return the names in a field, each once, in order.

    Raises InvalidRequestError when the field is not a row of names, or has too many.
    """
    if len(data) % ID_BYTES:
        raise InvalidRequestError(
            f"names of {ID_BYTES} bytes each cannot have {len(data)} together", field="names"
        )
    num_names = len(data) // ID_BYTES
    if num_names > MAX_NAMES:
        raise InvalidRequestError(
            f"{num_names} names in one message; at most {MAX_NAMES} are allowed", field="names"
        )
    starts = range(0, len(data), ID_BYTES)
    return list(dict.fromkeys(BlockName(data[start : start + ID_BYTES]) for start in starts))


def join_bits(bits: Sequence[bool]) -> bytes:
    """Return the field with a bit per value, the lowest of the first byte first."""
    field = bytearray(-(-len(bits) // 8))
    for place, bit in enumerate(bits):
        field[place // 8] |= bit << place % 8
    return bytes(field)


def join_names(names: Iterable[BlockName]) -> bytes:
    """Return the field that contains these names."""
    return b"".join(names)
