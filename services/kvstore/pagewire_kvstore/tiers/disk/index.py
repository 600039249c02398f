"""Thread-safe index of the blocks on disk: sizes, order of use, hits and misses.

The index reads no files and never waits for the disk.
"""

import threading
from collections.abc import Callable

from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.tiers.errors import RecordTooLargeError, TierPinnedError
from pagewire_kvstore.tiers.ledger import Ledger

TOUCH_SECONDS = 60.0
"""Shortest time between two updates of a file's modification time. Otherwise every read of a hot
block would cost a metadata write; the order after a restart need not be finer."""


class DiskIndex:
    """A ledger under a lock, with the modification time of each block's file."""

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
        """Most bytes of all blocks' files."""
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
        """Return the blocks to evict before one can be added, without changing the index.

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
        """Add a block as the most recently used; the caller has removed what `room_for` named."""
        with self._lock:
            self._ledger.add(key, num_bytes, tenant)
            self._used_at[key] = used_at

    def remove(self, key: BlockKey) -> None:
        """Remove a block, if the index has it."""
        with self._lock:
            self._ledger.remove(key)
            self._used_at.pop(key, None)

    def use(self, key: BlockKey, now: float) -> bool:
        """Count a hit; return whether to update the file's modification time."""
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
        """Count the bytes of a block whose file could not be removed, for `write_off`."""
        with self._lock:
            self._lost_bytes += self._ledger.bytes_of(key)

    def write_off(self) -> None:
        """Subtract lost bytes from the capacity. Never call it between `room_for` and `add`, which
        would then lack room."""
        with self._lock:
            self._ledger.capacity_bytes -= self._lost_bytes
            self._lost_bytes = 0
