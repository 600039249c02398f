"""Delays between attempts: exponential with full jitter. Owns no clock."""

import random
from dataclasses import dataclass

REDIAL_MAX_SECONDS = 0.25
"""Between attempts to reach a scheduler: it is back in a second, and all streams wait for it."""


@dataclass(slots=True)
class Backoff:
    """Grows from `first_seconds` to `max_seconds`, doubling; `reset` after a success.

    Jitter as in "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015), between half and
    all of the nominal delay, so that peers of a restarted process do not return at one instant.
    """

    first_seconds: float = 0.05
    max_seconds: float = 1.0
    _nominal_seconds: float = 0.0

    def next_seconds(self) -> float:
        """Return how long to wait before the next attempt."""
        doubled = self._nominal_seconds * 2 if self._nominal_seconds else self.first_seconds
        self._nominal_seconds = min(doubled, self.max_seconds)
        return self._nominal_seconds * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Start again from the first delay."""
        self._nominal_seconds = 0.0
