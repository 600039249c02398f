"""Leases: pins of blocks that end at a given time, which callers pass in seconds."""

import heapq
import math
from collections.abc import Iterable
from typing import NamedTuple

from pagewire_kvstore.blocks.types import BlockKey
from pagewire_shared.errors import InvalidRequestError, OverloadedError

NO_LEASE = 0
"""Lease id of a pin that named no block; releasing it does nothing."""


class _Lease(NamedTuple):
    keys: frozenset[BlockKey]
    ends_at: float


class Leases:
    """Pins of blocks, each for a while; a block stays pinned until its last lease ends.

    `now` is seconds of any clock that never goes back.

    Args:
        max_leases: Most leases at a time.
        max_seconds: Longest lease.
        max_blocks: Most blocks of all leases together; a block counts once per lease that pins it.
        first_id: Id of the first lease; later ids count up. A store draws a random one at its
            start, so that a release meant for its predecessor ends no lease of its own.
    """

    def __init__(
        self, max_leases: int, max_seconds: float, max_blocks: int, first_id: int = 1
    ) -> None:
        assert first_id > NO_LEASE, first_id
        self._max_leases = max_leases
        self._max_seconds = max_seconds
        self._max_blocks = max_blocks
        self._next_id = first_id
        self._leases: dict[int, _Lease] = {}
        self._num_blocks = 0
        self._num_pins: dict[BlockKey, int] = {}
        # (ends_at, lease id), also of leases released early until the next compaction.
        self._ends: list[tuple[float, int]] = []

    @property
    def num_leases(self) -> int:
        """Leases that have not ended."""
        return len(self._leases)

    @property
    def num_pinned(self) -> int:
        """Different blocks that are pinned."""
        return len(self._num_pins)

    def is_pinned(self, key: BlockKey) -> bool:
        """Whether a lease that has not ended names the block."""
        return key in self._num_pins

    def pin(self, keys: Iterable[BlockKey], lease_seconds: float, now: float) -> int:
        """Pin blocks until `now + lease_seconds`; leases that are over by then end first.

        Returns:
            Lease id, or NO_LEASE when there are no keys.

        Raises:
            InvalidRequestError: The lease is too long, has no length, or names too many blocks.
            OverloadedError: Too many leases or pins now; `retry_after_ms` is the next lease's end.
        """
        if not 0 < lease_seconds <= self._max_seconds:
            raise InvalidRequestError(
                f"a lease is more than 0 and at most {self._max_seconds:g} seconds,"
                f" not {lease_seconds:g}",
                field="lease_ms",
            )
        wanted = frozenset(keys)
        if len(wanted) > self._max_blocks:
            raise InvalidRequestError(
                f"{len(wanted)} blocks in one lease; at most {self._max_blocks} can be pinned",
                field="names",
            )
        self.expire(now)
        if not wanted:
            return NO_LEASE
        self._check_room(len(wanted), now)
        lease_id = self._next_id
        self._next_id += 1
        lease = _Lease(wanted, now + lease_seconds)
        self._leases[lease_id] = lease
        heapq.heappush(self._ends, (lease.ends_at, lease_id))
        self._num_blocks += len(wanted)
        for key in wanted:
            self._num_pins[key] = self._num_pins.get(key, 0) + 1
        return lease_id

    def _check_room(self, num_blocks: int, now: float) -> None:
        if len(self._leases) >= self._max_leases:
            full = f"{self._max_leases} leases are held, which is the most"
        elif self._num_blocks + num_blocks > self._max_blocks:
            full = (
                f"{self._num_blocks} blocks are pinned and {num_blocks} more wanted;"
                f" at most {self._max_blocks} can be"
            )
        else:
            return
        next_end = self.next_end()
        wait_seconds = self._max_seconds if next_end is None else next_end - now
        raise OverloadedError(full, retry_after_ms=max(1, math.ceil(wait_seconds * 1000)))

    def next_end(self) -> float | None:
        """Return when the next lease ends by itself; None without leases."""
        while self._ends and self._ends[0][1] not in self._leases:
            heapq.heappop(self._ends)
        return self._ends[0][0] if self._ends else None

    def release(self, lease_id: int) -> None:
        """End a lease early; an id that is unknown or has ended is ignored."""
        self._end(lease_id)
        if len(self._ends) > 2 * len(self._leases) + 64:
            # Pin and release in turn must not grow the heap until the leases would have ended.
            self._ends = [(lease.ends_at, known) for known, lease in self._leases.items()]
            heapq.heapify(self._ends)

    def expire(self, now: float) -> None:
        """End the leases whose time has come."""
        while (next_end := self.next_end()) is not None and next_end <= now:
            self._end(self._ends[0][1])

    def _end(self, lease_id: int) -> None:
        lease = self._leases.pop(lease_id, None)
        if lease is None:
            return
        self._num_blocks -= len(lease.keys)
        for key in lease.keys:
            if self._num_pins[key] == 1:
                del self._num_pins[key]
            else:
                self._num_pins[key] -= 1
