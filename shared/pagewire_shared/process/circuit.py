"""Circuit breaker: stops calls to a service that fails, and tries one call after a while.

Callers pass the time and make the calls.
"""

import enum
from typing import Final


class CircuitState(enum.Enum):
    """State of a circuit breaker."""

    CLOSED = "closed"
    """All calls are made."""
    OPEN = "open"
    """No call is made, for a while."""
    HALF_OPEN = "half_open"
    """One call is made; its result closes or opens the circuit."""


MOVES: Final = {
    CircuitState.CLOSED: frozenset({CircuitState.OPEN}),
    CircuitState.OPEN: frozenset({CircuitState.HALF_OPEN, CircuitState.CLOSED}),
    CircuitState.HALF_OPEN: frozenset({CircuitState.OPEN, CircuitState.CLOSED}),
}
"""Legal moves. Open to closed: a call that was made before the circuit opened succeeded."""


class CircuitBreaker:
    """Opens after failures in a row, for a time that doubles with every failed attempt.

    M. Nygard, Release It!, 2nd edition, 5.2. Times are seconds of any clock that never goes back.
    """

    __slots__ = (
        "_attempt_until",
        "_first_seconds",
        "_max_failures",
        "_max_seconds",
        "_num_failures",
        "_open_seconds",
        "_open_until",
        "state",
    )

    def __init__(
        self, *, max_failures: int = 3, first_seconds: float = 0.5, max_seconds: float = 30.0
    ) -> None:
        """Args:
        max_failures: Failures in a row that open the circuit.
        first_seconds: Seconds that it stays open the first time.
        max_seconds: Most seconds that it stays open.
        """
        assert max_failures > 0, max_failures
        assert 0 < first_seconds <= max_seconds, (first_seconds, max_seconds)
        self._max_failures = max_failures
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        self.state = CircuitState.CLOSED
        self._num_failures = 0
        self._open_seconds = 0.0
        self._open_until = 0.0
        self._attempt_until = 0.0

    @property
    def is_closed(self) -> bool:
        """Whether all calls are made."""
        return self.state is CircuitState.CLOSED

    def allows_attempt(self, now: float) -> bool:
        """Return whether a call may begin.

        While half open, an attempt that never reports counts as failed after `max_seconds`.
        """
        if self.state is CircuitState.OPEN:
            return now >= self._open_until
        return self.is_closed or now >= self._attempt_until

    def begin(self, now: float) -> None:
        """Begin a call, after `allows_attempt` was true.

        The caller reports the outcome by `succeed`, `fail` or `forgo`.
        """
        assert self.allows_attempt(now), "a circuit breaker is passed that is open"
        if self.is_closed:
            return
        if self.state is CircuitState.OPEN:
            self._move(CircuitState.HALF_OPEN)
        self._attempt_until = now + self._max_seconds

    def succeed(self) -> None:
        """Note that a call succeeded."""
        self._num_failures = 0
        self._open_seconds = 0.0
        if not self.is_closed:
            self._move(CircuitState.CLOSED)

    def fail(self, now: float) -> None:
        """Note that a call failed; ignored while open, for calls made before the circuit opened."""
        if self.state is CircuitState.OPEN:
            return
        self._num_failures += 1
        if self.is_closed and self._num_failures < self._max_failures:
            return
        doubled = 2 * self._open_seconds or self._first_seconds
        self._open_seconds = min(doubled, self._max_seconds)
        self._open_until = now + self._open_seconds
        self._move(CircuitState.OPEN)

    def forgo(self) -> None:
        """Note that a call ended without a result; another attempt may take its place."""
        if self.state is CircuitState.HALF_OPEN:
            self._move(CircuitState.OPEN)

    def _move(self, state: CircuitState) -> None:
        assert state in MOVES[self.state], (self.state, state)
        self.state = state
