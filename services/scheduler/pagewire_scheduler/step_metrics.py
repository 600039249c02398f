"""Counters of steps per model, for the process's metrics endpoint. Decides nothing.

While a worker has a plan unanswered it is busy; what it is busy for and not inside the model
(planning, the wire, assembling the batch) is the share that serving costs.
"""

from prometheus_client import Counter

_STEPS = Counter("pagewire_steps", "Steps answered", ["model"])
_TOKENS = Counter("pagewire_sampled_tokens", "Tokens sampled by steps", ["model"])
_BUSY = Counter("pagewire_step_busy_seconds", "Time with a step under way", ["model"])
_MODEL = Counter("pagewire_step_model_seconds", "Part of it inside the model", ["model"])

MICROSECONDS = 1e-6


class StepMeter:
    """Measures one worker's stream of steps; times are seconds of the caller's clock."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._num_outstanding = 0
        self._since = 0.0

    def sent(self, now: float) -> None:
        """A plan was sent."""
        if self._num_outstanding == 0:
            self._since = now
        self._num_outstanding += 1

    def answered(self, now: float, num_tokens: int, model_time_us: int) -> None:
        """Its result arrived."""
        self._num_outstanding -= 1
        _STEPS.labels(self._model).inc()
        _TOKENS.labels(self._model).inc(num_tokens)
        _BUSY.labels(self._model).inc(now - self._since)
        _MODEL.labels(self._model).inc(model_time_us * MICROSECONDS)
        self._since = now
