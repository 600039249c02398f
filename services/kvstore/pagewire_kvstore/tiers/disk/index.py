"""What a disk tier holds, for the threads that use it. Knows no files, and waits for nothing."""

import threading
from collections.abc import Callable

from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.tiers.errors import RecordTooLargeError, TierPinnedError
from pagewire_kvstore.tiers.ledger import Ledger

TOUCH_SECONDS = 60.0
"""A hit writes the file's time at most this often: a hot block would otherwise cost a write of
metadata for every read, and the order after a restart need not be finer."""


class DiskIndex:
    """A ledger under a lock, with the time that each block's file says it was used at.

    Attributes:
        num_hits: Uses counted.
        num_misses: Misses counted.
    """

    def __init__(
        self,
        capacity_bytes: int,
        quota: Callable[[str], int | None],
        is_pinned: Callable[[BlockKey], bool],
    ) -> None:
        self._lock = threading.Lock()
        self._ledger = Ledger(capacity_bytes, quota)
        self._is_pinned = is_pinned
        # Seconds since the epoch, as the files' modification times have them.
        self._used_at: dict[BlockKey, float] = {}
        self._lost_bytes = 0
        self.num_hits = 0
        self.num_misses = 0

    def __len__(self) -> int:
        return len(self._ledger)

    def __contains__(self, key: BlockKey) -> bool:
        with self._lock:
            return key in self._ledger

    @property
    def used_bytes(self) -> int:
        """Bytes of all blocks' files."""
        return self._ledger.used_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes that they may have."""
        return self._ledger.capacity_bytes

    def keys(self) -> list[BlockKey]:
        """Return all keys, the least recently used first."""
        with self._lock:
            return list(self._ledger.keys())

    def tenant_keys(self, tenant: str) -> list[BlockKey]:
        """Return the keys of a tenant, the least recently used first."""
        with self._lock:
            return self._ledger.tenant_keys(tenant)

    def room_for(self, key: BlockKey, num_bytes: int, tenant: str) -> list[BlockKey]:
        """Name the blocks that must go before one can be added; changes nothing.

        Raises RecordTooLargeError, or TierPinnedError when pinned blocks leave no room.
        """
        with self._lock:
            bound = self._ledger.bound_of(tenant)
            victims = self._ledger.room_for(key, num_bytes, tenant, self._is_pinned)
        if num_bytes > bound:
            raise RecordTooLargeError(
                f"a record of {num_bytes} bytes; tenant {tenant!r} may hold {bound} on disk"
            )
        if victims is None:
            raise TierPinnedError(
                f"no room for {num_bytes} bytes: pinned blocks fill the disk tier, or the quota"
                f" of tenant {tenant!r}"
            )
        return victims

    def add(self, key: BlockKey, num_bytes: int, tenant: str, used_at: float) -> None:
        """Add as the most recently used; what `room_for` named is gone."""
        with self._lock:
            self._ledger.add(key, num_bytes, tenant)
            self._used_at[key] = used_at

    def remove(self, key: BlockKey) -> None:
        """Remove, if it is there."""
        with self._lock:
            self._ledger.remove(key)
            self._used_at.pop(key, None)

    def use(self, key: BlockKey, now: float) -> bool:
        """Count a hit; return whether its file is to say so, too."""
        with self._lock:
            self.num_hits += 1
            self._ledger.touch(key)
            used_at = self._used_at.get(key)
            # Also when the wall clock went back.
            if used_at is None or abs(now - used_at) < TOUCH_SECONDS:
                return False
            self._used_at[key] = now
            return True

    def miss(self) -> None:
        """Count a miss."""
        with self._lock:
            self.num_misses += 1

    def lose(self, key: BlockKey) -> None:
        """The room of a block is lost, for its file stays: see `write_off`."""
        with self._lock:
            self._lost_bytes += self._ledger.bytes_of(key)

    def write_off(self) -> None:
        """Take what was lost from the capacity. Not between `room_for` and `add`, which would then
        lack room."""
        with self._lock:
            self._ledger.capacity_bytes -= self._lost_bytes
            self._lost_bytes = 0
