"""Creates a block store with the tiers that the settings name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.disk.tier import DiskTier
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_kvstore.tiers.memory import MemoryTier
from pagewire_kvstore.tiers.memory_limit import check_memory
from pagewire_kvstore.tiers.redis.tier import DEFAULT_TTL_SECONDS, RedisTier
from pagewire_kvstore.tiers.redis.values import RedisValues
from pagewire_kvstore.tiers.slow_tier import SlowTier
from pagewire_shared.errors import PagewireError, StartupError

_QUEUED_PART = 4
_MAX_QUEUED_BYTES = 64 << 20


def _no_quota(tenant: str) -> int | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Settings of the tiers of a store.

    Attributes:
        memory_bytes: Size of the memory tier, all of it taken at the start.
        shared_memory_path: File that the memory tier is, for peers of the host to map; None for
            private memory.
        disk_path: Folder of the disk tier; None for no disk tier.
        disk_bytes: Most bytes of its files; set with `disk_path`.
        redis_url: URL of the Redis tier; None for no Redis tier.
        redis_ttl_seconds: Time in seconds after which Redis drops an unused block.
        quota: Bound of a tenant in bytes, in memory and on disk each; None for no bound of its own.
    """

    memory_bytes: int
    shared_memory_path: Path | None = None
    disk_path: Path | None = None
    disk_bytes: int | None = None
    redis_url: str | None = None
    redis_ttl_seconds: int = DEFAULT_TTL_SECONDS
    quota: Callable[[str], int | None] = _no_quota


def create_store(
    settings: TierSettings, *, is_pinned: Callable[[BlockKey], bool], events: EventLog
) -> BlockStore:
    """Return a store with the blocks that its disk has.

    Args:
        is_pinned: Whether a block must stay. Called from threads, too: it may not wait, and not
            call the store.
        events: Log of the blocks that are stored and removed from now on.

    Raises StartupError when memory or disk is not available. A silent Redis is not an error.
    """
    if (settings.disk_path is None) != (settings.disk_bytes is None):
        raise StartupError("--disk-path and --disk-size are set together or not at all")
    if settings.redis_ttl_seconds <= 0:
        raise StartupError(f"a time to live of {settings.redis_ttl_seconds} s in Redis")
    check_memory(settings.memory_bytes, "--memory-size")
    # Queued blocks may be pinned in memory, of which most must stay free for other blocks.
    max_queued_bytes = min(_MAX_QUEUED_BYTES, settings.memory_bytes // _QUEUED_PART)
    slower: list[SlowTier] = []
    try:
        if settings.redis_url is not None:
            slower.append(_redis(settings.redis_url, settings, max_queued_bytes))
        if settings.disk_path is not None and settings.disk_bytes is not None:
            disk = _disk(settings.disk_path, settings.disk_bytes, settings, is_pinned)
            slower.insert(0, DiskTier(disk, max_queued_bytes))
        memory = MemoryTier(
            settings.memory_bytes, settings.quota, is_pinned, settings.shared_memory_path
        )
    except PagewireError:
        for tier in slower:
            tier.close()
        raise
    return BlockStore(memory, slower, events)


def _redis(url: str, settings: TierSettings, max_queued_bytes: int) -> RedisTier:
    return RedisTier(
        RedisValues(url),
        ttl_seconds=settings.redis_ttl_seconds,
        max_queued_bytes=max_queued_bytes,
    )


def _disk(
    path: Path, num_bytes: int, settings: TierSettings, is_pinned: Callable[[BlockKey], bool]
) -> DiskBlocks:
    if num_bytes <= 0:
        raise StartupError(f"--disk-size: {num_bytes} bytes")
    try:
        return DiskBlocks(path, num_bytes, quota=settings.quota, is_pinned=is_pinned)
    except TierUnavailableError as error:
        raise StartupError(f"--disk-path: {error.message}") from error
