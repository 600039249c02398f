"""Detects workers that have work and make no progress. The caller passes `now` in, in seconds."""

from collections import deque

MIN_SILENCE_SECONDS = 2.0
SILENCE_FACTOR = 10.0
NUM_RECENT_INTERVALS = 32


class ProgressWatch:
    """Compares the time since a worker's last progress with its own recent intervals.

    A stuck worker has work, and no progress for max(2 s, 10 times the longest recent interval).
    """

    def __init__(self, now: float) -> None:
        self._last = now
        self._counter = 0
        self._is_busy = False
        self._intervals: deque[float] = deque(maxlen=NUM_RECENT_INTERVALS)

    def start_work(self, now: float) -> None:
        """Note a plan that was sent. Idle time before it does not count."""
        if not self._is_busy:
            self._is_busy = True
            self._last = now

    def advance(self, now: float, counter: int | None, *, has_work: bool) -> None:
        """Note a progress counter, or (None) a result. An unchanged counter is not progress."""
        if counter is not None and counter <= self._counter:
            return
        self._counter = counter if counter is not None else self._counter
        if self._is_busy:
            self._intervals.append(now - self._last)
        self._last = now
        self._is_busy = has_work

    def forgive(self, seconds: float) -> None:
        """Leave out seconds for which this process itself was stopped and received nothing."""
        self._last += seconds

    def is_stuck(self, now: float) -> bool:
        """Whether the worker is stuck and its stream must be closed."""
        if not self._is_busy:
            return False
        longest = max(self._intervals, default=0.0)
        return now - self._last > max(MIN_SILENCE_SECONDS, SILENCE_FACTOR * longest)
