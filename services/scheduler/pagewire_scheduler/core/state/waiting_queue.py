"""The waiting queue of a worker, sorted by the keys of its sequences. The planner takes sequences
out of it."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from pagewire_scheduler.core.state.accounts import count_waiting
from pagewire_scheduler.core.state.queue_sums import QueueSums
from pagewire_scheduler.core.state.request import Key, Sequence


class WaitingQueue:
    """A sorted list of keys with a dictionary of the members.

    Entering and leaving cost a search and the move of some pointers (below a microsecond for the
    thousands that are let in); looking at the first few costs nothing.

    Attributes:
        num_expected: Tokens of the members that are expected to be computed, and not found in the
            cache.
        sums: The sums of this and other queues.
    """

    __slots__ = ("_keys", "_members", "_whole", "num_expected", "sums")

    def __init__(self, sums: QueueSums, whole: "WaitingQueue | None" = None) -> None:
        """Args: `whole` is the queue that this one is a part of, for its members."""
        self._whole = self if whole is None else whole
        self._keys: list[Key] = []
        self._members: dict[Key, Sequence] = {}
        self.num_expected = 0
        self.sums = sums

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._members.values())

    def __contains__(self, sequence: Sequence) -> bool:
        return self._members.get(sequence.key) is sequence

    def push(self, sequence: Sequence) -> None:
        """Enter a sequence at its place."""
        assert sequence.placement.queue is None, "a sequence is queued twice"
        assert sequence.key not in self._members, "two sequences have one key"
        sequence.placement.queue = self._whole
        if not sequence.placement.num_expected:
            # Its cached prefix was not looked up.
            sequence.placement.num_expected = len(sequence.tokens)
        self._members[sequence.key] = sequence
        self.num_expected += sequence.placement.num_expected
        self.sums.enter(sequence)
        if sequence.is_asked_for:
            count_waiting(sequence, 1)
        sequence.recount()
        insort(self._keys, sequence.key)

    def at(self, index: int) -> Sequence | None:
        """Return the sequence at `index` in the order of service, or None."""
        return self._members[self._keys[index]] if index < len(self._keys) else None

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        assert sequence in self, "a sequence leaves a queue it is not in"
        sequence.placement.queue = None
        del self._members[sequence.key]
        del self._keys[bisect_left(self._keys, sequence.key)]
        self.num_expected -= sequence.placement.num_expected
        self.sums.leave(sequence)
        if sequence.is_asked_for:
            count_waiting(sequence, -1)

    def drop_follower(self) -> None:
        """Count a choice less that follows a member."""
        self.sums.drop_follower()


class WaitingAside:
    """Sequences of a worker that do not compete for slots.

    Attributes:
        compiling: Sequences whose grammar is not compiled yet.
        loading: Sequences that wait for blocks.
        resting: Sequences left out by steps, which have given their slots to others for a while.
        returning: PREEMPTED sequences that a step under way still names; they are in no queue.
    """

    __slots__ = ("compiling", "loading", "resting", "returning")

    def __init__(self, sums: QueueSums) -> None:
        self.compiling, self.loading = WaitingQueue(sums), WaitingQueue(sums)
        self.resting = WaitingQueue(sums)
        self.returning: set[Sequence] = set()

    @property
    def queues(self) -> tuple[WaitingQueue, ...]:
        """The queues of these sequences."""
        return self.compiling, self.loading, self.resting
