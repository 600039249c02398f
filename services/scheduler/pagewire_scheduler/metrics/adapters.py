"""Metrics of loads of LoRA adapters by workers."""

from typing import Final

from prometheus_client import Counter, Histogram

OUTCOMES: Final = ("warm", "cold", "failed")

_LOADS = Counter(
    "pagewire_scheduler_adapter_loads", "Loads of adapters by workers", ["model", "outcome"]
)
_BUCKETS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0),
)
_SECONDS = Histogram(
    "pagewire_scheduler_adapter_load_seconds",
    "Time from the order to load an adapter to its answer",
    ["model"],
    buckets=_BUCKETS,
)
_WAITS = Histogram(
    "pagewire_scheduler_adapter_wait_seconds",
    "Time that sequences waited for a slot with their adapter, of those that got it",
    ["model"],
    buckets=_BUCKETS,
)


class AdapterMeter:
    """Measures the loads of one worker; times are seconds of the caller's clock."""

    def __init__(self, model: str) -> None:
        self._loads = {outcome: _LOADS.labels(model, outcome) for outcome in OUTCOMES}
        self._seconds = _SECONDS.labels(model)
        self._waits = _WAITS.labels(model)
        self._ordered: dict[int, float] = {}

    def waited(self, seconds: float) -> None:
        """Note the wait of a sequence whose adapter is loaded."""
        self._waits.observe(seconds)

    def ordered(self, now: float, load_id: int) -> None:
        """Note a load that was ordered; there are as many as adapter slots at most."""
        self._ordered[load_id] = now

    def answered(self, now: float, load_id: int, *, is_loaded: bool, was_warm: bool) -> None:
        """Note the answer to a load."""
        began_at = self._ordered.pop(load_id, None)
        if began_at is None:
            return
        outcome = ("warm" if was_warm else "cold") if is_loaded else "failed"
        self._loads[outcome].inc()
        self._seconds.observe(now - began_at)
