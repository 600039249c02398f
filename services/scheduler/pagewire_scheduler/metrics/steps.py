"""Metrics of steps per model.

A worker is busy while one of its plans is unanswered. Busy time outside the model (planning, the
wire, assembling the batch) is the overhead of serving.
"""

from prometheus_client import Counter, Histogram

_STEPS = Counter("pagewire_steps", "Steps answered", ["model"])
_TOKENS = Counter("pagewire_sampled_tokens", "Tokens sampled by steps", ["model"])
_BUSY = Counter("pagewire_step_busy_seconds", "Time with a step under way", ["model"])
_MODEL = Counter("pagewire_step_model_seconds", "Part of it inside the model", ["model"])
_SECONDS = Histogram(
    "pagewire_scheduler_step_seconds",
    "Time of a step, from the answer before it or its plan, whichever was later, to its answer",
    ["model"],
    buckets=(
        *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
        *(0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0),
    ),
)

MICROSECONDS = 1e-6


class ModelStepMeter:
    """Measures one worker's stream of steps; times are seconds of the caller's clock."""

    def __init__(self, model: str) -> None:
        # Looked up once: a step of a small model takes a millisecond.
        self._steps = _STEPS.labels(model)
        self._tokens = _TOKENS.labels(model)
        self._busy = _BUSY.labels(model)
        self._inside = _MODEL.labels(model)
        self._seconds = _SECONDS.labels(model)
        self._num_outstanding = 0
        self._since = 0.0

    def sent(self, now: float) -> None:
        """Note a plan that was sent."""
        if self._num_outstanding == 0:
            self._since = now
        self._num_outstanding += 1

    def answered(self, now: float, num_tokens: int, model_time_us: int) -> None:
        """Note the result of the oldest plan."""
        self._num_outstanding -= 1
        seconds = now - self._since
        self._steps.inc()
        self._tokens.inc(num_tokens)
        self._busy.inc(seconds)
        self._inside.inc(model_time_us * MICROSECONDS)
        self._seconds.observe(seconds)
        self._since = now
