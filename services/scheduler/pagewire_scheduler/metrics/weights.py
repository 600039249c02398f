"""Metrics of updates of weights."""

from typing import Final

from prometheus_client import Counter, Histogram

_UPDATES = Counter(
    "pagewire_scheduler_weights_updates", "Updates of weights that have ended", ["model", "outcome"]
)
_PAUSES = Histogram(
    "pagewire_scheduler_weights_pause_seconds",
    "Time in which no request of a model began because its weights were exchanged",
    ["model"],
    buckets=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
OUTCOMES: Final = ("updated", "refused", "failed")


def note_update(model: str, outcome: str) -> None:
    """Count an update: `refused` before anything paused, `failed` after it."""
    assert outcome in OUTCOMES, outcome
    _UPDATES.labels(model, outcome).inc()


def note_pause(model: str, seconds: float) -> None:
    """Note the time in which a model was held."""
    _PAUSES.labels(model).observe(seconds)
