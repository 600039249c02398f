"""Shows the sleep of a worker on its metrics endpoint, under vLLM's name where there is one."""

from collections.abc import Callable
from functools import partial
from typing import Final

from prometheus_client import Counter, Gauge, Histogram

from pagewire_shared.sleep.state import WorkerSleep

_STATE = Gauge(
    "vllm:engine_sleep_state",
    "1 for the state that the worker is in: awake, weights_offloaded or discard_all",
    ["model_name", "sleep_state"],
)
_WAKE_SECONDS = Histogram(
    "pagewire_worker_wake_seconds",
    "Time from the order to wake to the replica",
    ["model"],
    buckets=(0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0),
)
_FAILED_WAKES = Counter("pagewire_worker_failed_wakes", "Wakes that failed", ["model"])

_LEVELS: Final = {0: "awake", 1: "weights_offloaded", 2: "discard_all"}


class SleepMeter:
    """Measures the sleep of one worker."""

    def __init__(self, model: str, sleep: Callable[[], WorkerSleep | None]) -> None:
        """Args: `sleep` returns where the worker is, from any thread; None while it is awake."""
        self._seconds = _WAKE_SECONDS.labels(model)
        self._failed = _FAILED_WAKES.labels(model)
        for level, name in _LEVELS.items():
            _STATE.labels(model, name).set_function(partial(_is_at, sleep, level))

    def woke(self, seconds: float) -> None:
        """Count a wake."""
        self._seconds.observe(seconds)

    def failed(self) -> None:
        """Count a wake that failed."""
        self._failed.inc()


def _is_at(sleep: Callable[[], WorkerSleep | None], level: int) -> float:
    now = sleep()
    return float((0 if now is None else now.level) == level)
