"""Fault isolation: finds the sequence that makes a step fail. It runs the sequences of a failed
step again in ever smaller groups, apart from all others.

The search is a bisection: it finds a culprit among n in about 2 log2(n) steps. A sequence that
fails alone gets a second try, because a fault may be transient. All other sequences go on.
"""

from collections import deque
from collections.abc import Iterable, Iterator

from pagewire_scheduler.core.state.request import Request, Sequence, SequenceWorker

Unit = Sequence | Request
"""A sequence, or the beams of one search: tried as one."""


def unit_of(sequence: Sequence) -> Unit:
    """Return the unit that `sequence` belongs to."""
    return sequence.request if sequence.is_beam else sequence


def sequences_of(unit: Unit) -> list[Sequence]:
    """Return the sequences of a unit that have not ended."""
    members = unit.sequences if isinstance(unit, Request) else [unit]
    return [sequence for sequence in members if not sequence.state.is_finished]


class FaultIsolation:
    """Groups of suspects of one worker, the one being tried first.

    Suspects come from failed steps and from lost workers (see `losses`).
    """

    __slots__ = ("_failed_alone", "_groups", "_num_together", "_open")

    def __init__(self) -> None:
        self._groups: deque[list[Unit]] = deque()
        self._failed_alone: set[Unit] = set()
        # The newest group of suspects of losses, and how many it may have.
        self._open: list[Unit] = []
        self._num_together = 1

    def __bool__(self) -> bool:
        return bool(self._groups)

    def current(self) -> Iterator[Sequence]:
        """Yield the sequences that the next step may run."""
        for unit in self._groups[0]:
            yield from sequences_of(unit)

    def mark_suspect(self, unit: Unit, num_together: int) -> None:
        """Try `unit` after all present suspects, with others that have the same `num_together`.

        Args:
            num_together: Members of its group at most.
        """
        if any(unit in group for group in self._groups):
            return
        is_open = any(group is self._open for group in self._groups)
        if not is_open or num_together != self._num_together or len(self._open) >= num_together:
            self._open, self._num_together = [], num_together
            self._groups.append(self._open)
        self._open.append(unit)

    def isolate(self, sequences: Iterable[Sequence]) -> Unit | None:
        """Split the `sequences` of a failed step; return a unit that failed alone, and again.

        Suspects of the current trial that the step did not hold are tried later.
        """
        accused = list(dict.fromkeys(map(unit_of, sequences)))
        for group in self._groups:
            group[:] = [unit for unit in group if unit not in accused]
        if len(accused) == 1:
            (alone,) = accused
            if alone in self._failed_alone:
                self._failed_alone.discard(alone)
                self._tidy()
                return alone
            self._failed_alone.add(alone)
            self._groups.appendleft([alone])
        else:
            half = len(accused) // 2
            self._groups.appendleft(accused[half:])
            self._groups.appendleft(accused[:half])
        self._tidy()
        return None

    def clear_suspects(self, sequences: Iterable[Sequence]) -> None:
        """Clear `sequences`, which have got as far as a sample without a failure."""
        if self._groups:
            innocent = set(map(unit_of, sequences))
            for group in self._groups:
                group[:] = [unit for unit in group if unit not in innocent]
            self._tidy()

    def forget_absent(self, worker: SequenceWorker) -> None:
        """Drop the suspects that have ended or are not on `worker`."""
        for group in self._groups:
            group[:] = [
                unit
                for unit in group
                if any(sequence.placement.worker is worker for sequence in sequences_of(unit))
            ]
        self._tidy()

    def _tidy(self) -> None:
        self._groups = deque(group for group in self._groups if group)
        if self._failed_alone:
            self._failed_alone &= {unit for group in self._groups for unit in group}
