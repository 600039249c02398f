"""Delays between attempts: exponential backoff with jitter. Callers do the waiting."""

import random
from dataclasses import dataclass

REDIAL_MAX_SECONDS = 0.25
"""Longest delay between attempts to reach a scheduler, which usually is back within a second."""


@dataclass(slots=True)
class Backoff:
    """A delay that doubles from `first_seconds` to `max_seconds`; call `reset` after a success.

    Jitter as in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), between half and
    all of the nominal delay, so that peers of a restarted process do not return all at once.
    """

    first_seconds: float = 0.05
    max_seconds: float = 1.0
    _nominal_seconds: float = 0.0

    def next_seconds(self) -> float:
        """Return the seconds to wait before the next attempt."""
        doubled = self._nominal_seconds * 2 if self._nominal_seconds else self.first_seconds
        self._nominal_seconds = min(doubled, self.max_seconds)
        return self._nominal_seconds * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again from the first delay."""
        self._nominal_seconds = 0.0
