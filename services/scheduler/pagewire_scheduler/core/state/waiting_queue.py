"""The waiting queue of a worker, sorted by the keys of its sequences. The planner takes sequences
out of it."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pagewire_scheduler.core.data.moments import Moment, MomentKind, PauseCause
from pagewire_scheduler.core.data.queue_reasons import QueueReason, WaitClock
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
        num_of_adapter: Members that use each adapter.
        sums: The sums of this and other queues.
        clock: Adds up what its members wait for.
    """

    __slots__ = ("_keys", "_members", "_whole", "clock", "num_expected", "num_of_adapter", "sums")

    def __init__(
        self, sums: QueueSums, clock: WaitClock, whole: "WaitingQueue | None" = None
    ) -> None:
        """Args: `whole` is the queue that this one is a part of, for its members."""
        self._whole = self if whole is None else whole
        self._keys: list[Key] = []
        self._members: dict[Key, Sequence] = {}
        self.num_expected = 0
        self.num_of_adapter: Counter[bytes] = Counter()
        self.sums = sums
        self.clock = clock

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
        if not self._members:
            self.clock.restart()
        sequence.times.queued_at = self.clock.reading()
        sequence.placement.queue = self._whole
        if not sequence.placement.num_expected:
            # Its cached prefix was not looked up.
            sequence.placement.num_expected = len(sequence.tokens)
        self._members[sequence.key] = sequence
        self.num_expected += sequence.placement.num_expected
        self.count_adapter(sequence, 1)
        self.sums.enter(sequence)
        if sequence.is_asked_for:
            count_waiting(sequence, 1)
        sequence.recount()
        insort(self._keys, sequence.key)

    def at(self, index: int) -> Sequence | None:
        """Return the sequence at `index` in the order of service, or None."""
        return self._members[self._keys[index]] if index < len(self._keys) else None

    @property
    def num_parts(self) -> int:
        """Parts whose members wait for the same; the first of each come first in the order."""
        return min(len(self), 1)

    def note_reason(self, sequence: Sequence, reason: QueueReason) -> None:
        """Note what `sequence`, the first of its part, and all behind it wait for."""
        self.clock.turn(reason)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it stands."""
        assert sequence in self, "a sequence leaves a queue it is not in"
        _end_wait(sequence, self.clock)
        sequence.placement.queue = None
        del self._members[sequence.key]
        del self._keys[bisect_left(self._keys, sequence.key)]
        self.num_expected -= sequence.placement.num_expected
        self.count_adapter(sequence, -1)
        self.sums.leave(sequence)
        if sequence.is_asked_for:
            count_waiting(sequence, -1)

    def count_adapter(self, sequence: Sequence, change: int) -> None:
        """Count a member that comes or leaves under its adapter, if it has one."""
        adapter = sequence.request.submission.adapter
        if adapter:
            self.num_of_adapter[adapter] += change
            if not self.num_of_adapter[adapter]:
                del self.num_of_adapter[adapter]

    def drop_follower(self) -> None:
        """Count a choice less that follows a member."""
        self.sums.drop_follower()


@dataclass(slots=True)
class WantedAdapter:
    """An adapter that is in no slot.

    Attributes:
        waiting: Sequences that wait for it, in their order, and since when.
        num_passed: Sequences with other adapters that were started while it came first.
    """

    waiting: dict[Sequence, float] = field(default_factory=dict)
    num_passed: int = 0


class AdapterQueue(WaitingQueue):
    """Sequences that wait for adapters.

    Attributes:
        wanted: By adapter, in the order of turns: who began to wait first comes first.
    """

    __slots__ = ("_clock", "_on_wait", "wanted")

    def __init__(self, sums: QueueSums, clock: WaitClock) -> None:
        super().__init__(sums, clock)
        self.wanted: dict[bytes, WantedAdapter] = {}
        self._clock: Callable[[], float] = lambda: 0.0
        self._on_wait: Callable[[float], None] = lambda seconds: None

    def watch(self, clock: Callable[[], float], on_wait: Callable[[float], None]) -> None:
        """Call `on_wait` with the seconds of each wait that ends from now on with its adapter."""
        self._clock, self._on_wait = clock, on_wait
        for wanted in self.wanted.values():
            wanted.waiting = dict.fromkeys(wanted.waiting, clock())

    def end_wait(self, sequence: Sequence) -> None:
        """Take out a sequence whose adapter is loaded."""
        began_at = self.wanted[sequence.request.submission.adapter].waiting[sequence]
        self.remove(sequence)
        self._on_wait(self._clock() - began_at)

    def push(self, sequence: Sequence) -> None:
        """Enter a sequence; its adapter gets a turn if it has none."""
        super().push(sequence)
        adapter = sequence.request.submission.adapter
        self.wanted.setdefault(adapter, WantedAdapter()).waiting[sequence] = self._clock()

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out; the last one takes the turn of its adapter along."""
        super().remove(sequence)
        adapter = sequence.request.submission.adapter
        del self.wanted[adapter].waiting[sequence]
        if not self.wanted[adapter].waiting:
            del self.wanted[adapter]

    def note_started(self, adapter: bytes) -> None:
        """Count a start of a sequence with `adapter` against the one whose turn is next."""
        first = next(iter(self.wanted), adapter)
        if first != adapter:
            self.wanted[first].num_passed += 1


class WaitingAside:
    """Sequences of a worker that do not compete for slots.

    Attributes:
        compiling: Sequences whose grammar is not compiled yet.
        adapting: Sequences whose adapter is not loaded.
        loading: Sequences that wait for blocks.
        resting: Sequences left out by steps, which have given their slots to others for a while.
        returning: PREEMPTED sequences that a step under way still names; they are in no queue.
    """

    __slots__ = ("adapting", "compiling", "loading", "resting", "returning")

    def __init__(self, beside: WaitingQueue) -> None:
        """Args: `beside` is the queue of those that compete."""
        sums, part = beside.sums, beside.clock.of_part
        self.compiling = WaitingQueue(sums, part(QueueReason.GRAMMAR))
        self.adapting = AdapterQueue(sums, part(QueueReason.ADAPTER))
        # What is waited for here is in the times of transfers.
        self.loading = WaitingQueue(sums, part(None))
        self.resting = WaitingQueue(sums, part(QueueReason.GRAMMAR))
        self.returning: set[Sequence] = set()

    @property
    def queues(self) -> tuple[WaitingQueue, ...]:
        """The queues of these sequences."""
        return self.compiling, self.adapting, self.loading, self.resting


def _end_wait(sequence: Sequence, clock: WaitClock) -> None:
    times, moments, reading = sequence.times, sequence.request.moments, clock.reading()
    if moments is None:
        times.end_wait(reading)
        return
    before = times.paused
    times.end_wait(reading)
    if times.paused > before:
        moments.add(
            Moment(
                kind=MomentKind.PAUSE,
                choice=sequence.choice,
                ended_at=clock.read_at,
                seconds=times.paused - before,
                cause=_cause(sequence),
            )
        )


def _cause(sequence: Sequence) -> PauseCause | None:
    """Return what has happened since the pause before."""
    times = sequence.times
    counts = times.num_recoveries, sequence.fairness.num_preemptions, times.num_migrations
    before, times.paused_counts = times.paused_counts, counts
    for cause, now, then in zip(
        (PauseCause.WORKER_LOST, PauseCause.PREEMPTED, PauseCause.MOVED),
        counts,
        before,
        strict=True,
    ):
        if now > then:
            return cause
    return None
