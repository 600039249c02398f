"""Health of a tier: a count of its faults, and a circuit breaker for each kind of call."""

import logging
import threading
import time
from collections.abc import Callable

from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_shared.process.circuit import CircuitBreaker

_logger = logging.getLogger(__name__)

MAX_REASONS = 100


class FaultLog:
    """Counts the faults of one tier, and logs the first one of each reason.

    Attributes:
        num_faults: Calls that the tier could not serve.
    """

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._lock = threading.Lock()
        self._reasons_logged: set[str] = set()
        self.num_faults = 0
        self.num_corrupt = 0

    def fault(self, action: str, reason: str, why: str) -> None:
        """Count a fault. Args: `reason` has few values, as in metrics; `why` is for a person."""
        with self._lock:
            self.num_faults += 1
        self._log_once(action, f"{action} {reason}", why)

    def corrupt(self, block: str, reason: str, why: str) -> None:
        """Count a damaged block that was moved to quarantine."""
        with self._lock:
            self.num_corrupt += 1
        self._log_once(f"block {block} in quarantine", reason, why)

    def _log_once(self, what: str, reason: str, why: str) -> None:
        with self._lock:
            if reason in self._reasons_logged or len(self._reasons_logged) >= MAX_REASONS:
                return
            self._reasons_logged.add(reason)
        _logger.warning("%s tier: %s: %s; later ones are only counted", self._tier, what, why)


class TierHealth:
    """Results of one kind of calls, and whether to try the next call.

    Attributes:
        fault: Reason why the last call failed; None after a call that succeeded.
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
        """Whether the circuit is closed: False while the tier is left alone or tried again."""
        return self._breaker.is_closed

    def may_try(self) -> bool:
        """Return whether a call may be made, also the trial call of a half-open circuit.

        After True, the caller must call `worked` or `failed`.
        """
        now = self._clock()
        if not self._breaker.allows_attempt(now):
            return False
        self._breaker.begin(now)
        return True

    def worked(self) -> None:
        """Note that a call succeeded."""
        self.fault = None
        self._breaker.succeed()

    def failed(self, error: TierUnavailableError) -> None:
        """Note that a call failed because of the tier."""
        self.fault = error.message
        self._breaker.fail(self._clock())
