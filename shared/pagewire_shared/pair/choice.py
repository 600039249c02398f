"""Chooses the active one of the schedulers of a cell from what each says about itself. It does no
I/O: the caller passes `now` in, in seconds of a monotonic clock."""

from dataclasses import dataclass
from typing import Final

SILENCE_SECONDS: Final = 2.0
"""A scheduler that says nothing for this long counts as lost. It speaks every 0.25 s."""


@dataclass(slots=True)
class _Heard:
    """What one scheduler said last; `generation` is 0 while it stands by."""

    generation: int
    at: float


@dataclass(frozen=True, slots=True)
class HeardReport:
    """What one scheduler hears from this process; see WatchRequest."""

    active_generation: int
    highest_generation: int
    asks: bool


class SchedulerChoice:
    """The schedulers of one cell, numbered in the order of the setting."""

    def __init__(self) -> None:
        self._heard: dict[int, _Heard] = {}
        self._highest = 0

    def hear(self, index: int, generation: int, now: float) -> None:
        """Take note of what scheduler `index` says; `generation` 0 means that it stands by."""
        self._heard[index] = _Heard(generation, now)
        self._highest = max(self._highest, generation)

    def lose(self, index: int) -> None:
        """Take note that the stream to scheduler `index` has ended."""
        self._heard.pop(index, None)

    def forgive(self, seconds: float) -> None:
        """Leave out seconds for which this process itself did not run."""
        for heard in self._heard.values():
            heard.at += seconds

    def active(self, now: float) -> int | None:
        """Return the number of the active scheduler: the highest generation, if it is heard.

        A scheduler with a lower generation than one heard before is not active any more. Of two
        with the same one, all choose the first.
        """
        for index, heard in sorted(self._heard.items()):
            is_highest = heard.generation == self._highest and heard.generation > 0
            if is_highest and self._is_heard(heard, now):
                return index
        return None

    def is_heard(self, index: int, now: float) -> bool:
        """Whether scheduler `index` has said something lately."""
        heard = self._heard.get(index)
        return heard is not None and self._is_heard(heard, now)

    def report(self, index: int, now: float) -> HeardReport:
        """Return what to report to scheduler `index`."""
        active = self.active(now)
        generation = 0 if active is None else self._heard[active].generation
        asks = active is None and index == self.candidate(now)
        return HeardReport(generation, self._highest, asks)

    def candidate(self, now: float) -> int | None:
        """Return the first scheduler that is heard: the one that is to take over."""
        heard = (index for index, one in self._heard.items() if self._is_heard(one, now))
        return min(heard, default=None)

    @staticmethod
    def _is_heard(heard: _Heard, now: float) -> bool:
        return now - heard.at <= SILENCE_SECONDS
