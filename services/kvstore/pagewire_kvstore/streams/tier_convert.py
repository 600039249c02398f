"""Converts tier states and the place of the memory tier to messages."""

from pagewire_kvstore.tiers.loaded import TierState
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.kv.arena_facts import ArenaFacts


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
