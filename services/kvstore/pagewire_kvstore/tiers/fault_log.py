"""Faults of a tier: all are counted, one of each reason is logged. May be used by threads."""

import logging
import threading

_logger = logging.getLogger(__name__)

MAX_REASONS = 100


class FaultLog:
    """What went wrong in one tier.

    Attributes:
        num_faults: Times that the tier could not do what it was asked for.
        num_corrupt: Blocks found damaged.
    """

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._lock = threading.Lock()
        self._reasons_logged: set[str] = set()
        self.num_faults = 0
        self.num_corrupt = 0

    def fault(self, action: str, reason: str, why: str) -> None:
        """Count a fault. Args: `reason` is of few values, as in metrics; `why` is for a person."""
        with self._lock:
            self.num_faults += 1
        self._log_once(action, f"{action} {reason}", why)

    def corrupt(self, block: str, reason: str, why: str) -> None:
        """Count a damaged block, which was put in quarantine."""
        with self._lock:
            self.num_corrupt += 1
        self._log_once(f"block {block} in quarantine", reason, why)

    def _log_once(self, what: str, reason: str, why: str) -> None:
        with self._lock:
            if reason in self._reasons_logged or len(self._reasons_logged) >= MAX_REASONS:
                return
            self._reasons_logged.add(reason)
        _logger.warning("%s tier: %s: %s; later ones are only counted", self._tier, what, why)
