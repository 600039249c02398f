"""Sequences that wait for a worker's attention, in order of priority and arrival."""

import heapq
from collections.abc import Iterator

from pagewire_scheduler.core.request import Sequence

Key = tuple[int, int, int]

_SLACK = 64


class WaitingQueue:
    """A heap of keys with a dictionary of who is really there, so that leaving early is O(1)."""

    __slots__ = ("_heap", "_members", "num_tokens")

    def __init__(self) -> None:
        self._heap: list[Key] = []
        self._members: dict[Key, Sequence] = {}
        self.num_tokens = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._members.values())

    def __contains__(self, sequence: Sequence) -> bool:
        return self._members.get(sequence.key) is sequence

    def push(self, sequence: Sequence) -> None:
        """Enter a sequence at its place."""
        assert sequence.queue is None, "a sequence is queued twice"
        sequence.queue = self
        self._members[sequence.key] = sequence
        self.num_tokens += len(sequence.tokens)
        heapq.heappush(self._heap, sequence.key)
        if len(self._heap) > 2 * len(self._members) + _SLACK:
            self._heap = sorted(self._members)

    def peek(self) -> Sequence | None:
        """Return who is next, or None."""
        while self._heap:
            member = self._members.get(self._heap[0])
            if member is not None:
                return member
            heapq.heappop(self._heap)
        return None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        assert sequence in self, "a sequence leaves a queue it is not in"
        sequence.queue = None
        del self._members[sequence.key]
        self.num_tokens -= len(sequence.tokens)
