"""Adds up the time in a queue by what its members wait for.

The reason of the first member is that of all behind it. So one look at the first one per plan is
enough, however many wait.
"""

import enum
from collections.abc import Callable
from typing import Final


class QueueReason(enum.Enum):
    """What a sequence in a queue waits for; its value is the index of its seconds."""

    CAPACITY = 0  # slots or blocks, which others hold
    WORKER = 1  # a worker that takes sequences of its model
    SLEEP = 2  # a worker to wake: all of its model sleep
    TENANTS = 3  # sequences of other tenants, which are served first
    STEP = 4  # the next step, or one with tokens left
    ADAPTER = 5  # its adapter to be in a slot
    GRAMMAR = 6  # its grammar to be compiled
    TRIAL = 7  # trials of others, of which one made a step fail


Waits = tuple[float, ...]
"""Seconds by reason, in the order of QueueReason."""

NO_WAITS: Final[Waits] = (0.0,) * len(QueueReason)


def added(left: Waits, right: Waits) -> Waits:
    """Return the sums by reason."""
    return tuple(one + other for one, other in zip(left, right, strict=True))


class WaitClock:
    """The seconds that a queue has had each reason, from its creation on."""

    __slots__ = ("_now", "_reason", "_seconds", "_since", "first_reason")

    def __init__(self, now: Callable[[], float], reason: QueueReason | None) -> None:
        """Args: `reason` holds until a look finds another; None counts nothing."""
        self._now = now
        self._reason = self.first_reason = reason
        self._since = now()
        self._seconds = [0.0] * len(QueueReason)

    def of_part(self, reason: QueueReason | None) -> "WaitClock":
        """Return a clock that begins with `reason`, for a part of the queue."""
        return WaitClock(self._now, reason)

    def turn(self, reason: QueueReason | None) -> None:
        """Count to `reason` from now on."""
        if reason is not self._reason:
            self._advance()
            self._reason = reason

    def restart(self) -> None:
        """Forget what the last look found: the queue was empty."""
        self.turn(self.first_reason)

    @property
    def read_at(self) -> float:
        """Instant of the newest reading."""
        return self._since

    def reading(self) -> Waits:
        """Return the seconds until now."""
        self._advance()
        return tuple(self._seconds)

    def _advance(self) -> None:
        now = self._now()
        if self._reason is not None:
            self._seconds[self._reason.value] += now - self._since
        self._since = now
