"""Counts tokens and the time between them, once per chunk on the path of every token. Plain numbers
without the locks of a library's counter, read when metrics are collected."""

from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pagewire_frontend.metrics.buckets import TOKEN

BOUNDS_SECONDS = TOKEN
"""Upper bounds of the buckets of times between two tokens; one more bucket is above them."""


class TokenCounter:
    """The tokens of one model. Written by the event loop alone; reading may lag by one chunk."""

    __slots__ = ("num_by_bucket", "num_tokens", "seconds")

    def __init__(self) -> None:
        self.num_tokens = 0
        self.seconds = 0.0
        self.num_by_bucket = [0] * (len(BOUNDS_SECONDS) + 1)


class InterTokenLatency:
    """Times of the first and the last tokens of one choice."""

    __slots__ = ("_counter", "_first_at", "_last_at")

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._first_at = 0.0
        self._last_at: float | None = None

    @property
    def seconds(self) -> float:
        """From the first chunk to the last; 0 before there were two."""
        return 0.0 if self._last_at is None else self._last_at - self._first_at

    @property
    def first_at(self) -> float | None:
        """Time of the first chunk; None before it."""
        return None if self._last_at is None else self._first_at

    @property
    def last_at(self) -> float | None:
        """Time of the last chunk; None before the first."""
        return self._last_at

    def chunk(self, num_tokens: int, now: float) -> None:
        """Count a chunk that came at `now`, in seconds of one clock. Its tokens count as evenly
        spaced since the chunk before; in the first chunk, as 0 s apart."""
        counter, last, self._last_at = self._counter, self._last_at, now
        counter.num_tokens += num_tokens
        if last is None:
            self._first_at = now
            counter.num_by_bucket[0] += max(0, num_tokens - 1)
        elif num_tokens:
            seconds = now - last
            counter.seconds += seconds
            counter.num_by_bucket[bisect_left(BOUNDS_SECONDS, seconds / num_tokens)] += num_tokens


class TokenCounters(Collector):
    """The counters of all models, as metrics."""

    def __init__(self) -> None:
        self._counters: dict[str, TokenCounter] = {}

    def of(self, model: str) -> TokenCounter:
        """Return the counter of a configured model."""
        counter = self._counters.get(model)
        if counter is None:
            counter = self._counters[model] = TokenCounter()
        return counter

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        tokens = CounterMetricFamily(
            "pagewire_generation_tokens", "Tokens that were generated", labels=["model"]
        )
        intervals = HistogramMetricFamily(
            "pagewire_inter_token_latency_seconds",
            "Time between two tokens of a choice, as they arrive here",
            labels=["model"],
        )
        for model, counter in list(self._counters.items()):
            tokens.add_metric([model], counter.num_tokens)
            intervals.add_metric([model], _cumulative(counter.num_by_bucket), counter.seconds)
        yield tokens
        yield intervals


def _cumulative(num_by_bucket: list[int]) -> list[tuple[str, float]]:
    buckets = []
    total = 0
    for bound, count in zip((*BOUNDS_SECONDS, float("inf")), num_by_bucket, strict=True):
        total += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
    return buckets


TOKEN_COUNTERS = TokenCounters()
"""The counters of this process."""
