"""Whether one way to use a tier works: a tier that fails is left alone for a while."""

import time
from collections.abc import Callable

from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_shared.process.circuit import CircuitBreaker


class TierHealth:
    """What became of the calls of one kind, and whether the next one is worth it.

    Attributes:
        fault: Why the last one failed; None once one has gone well again.
    """

    def __init__(
        self, breaker: CircuitBreaker, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args: `clock` never goes back."""
        self._breaker = breaker
        self._clock = clock
        self.fault: str | None = None

    @property
    def is_good(self) -> bool:
        """Whether calls are made; False while the tier is left alone or being tried again."""
        return self._breaker.is_closed

    def may_try(self) -> bool:
        """Return whether a call may be made, one that tries whether it works again included.

        Who is told so says afterwards how it went.
        """
        now = self._clock()
        if not self._breaker.allows_attempt(now):
            return False
        self._breaker.begin(now)
        return True

    def worked(self) -> None:
        """A call went well."""
        self.fault = None
        self._breaker.succeed()

    def failed(self, error: TierUnavailableError) -> None:
        """A call failed because of the tier."""
        self.fault = error.message
        self._breaker.fail(self._clock())
