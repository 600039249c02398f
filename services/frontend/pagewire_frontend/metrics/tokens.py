"""Counts tokens and the time between them, once per chunk on the path of every token. Plain numbers
without the locks of a library's counter, read when metrics are collected."""

import time
from bisect import bisect_left
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from pagewire_frontend.metrics.buckets import TOKEN

BOUNDS_SECONDS = TOKEN
"""Upper bounds of the buckets of times between two tokens; one more bucket is above them."""


class TokenCounter:
    """The tokens of one model. Written by the event loop alone; reading may lag by one chunk."""

    __slots__ = ("exemplars", "num_by_bucket", "num_tokens", "seconds")

    def __init__(self) -> None:
        self.num_tokens = 0
        self.seconds = 0.0
        self.num_by_bucket = [0] * (len(BOUNDS_SECONDS) + 1)
        self.exemplars: list[Exemplar | None] = [None] * len(self.num_by_bucket)
        """The newest of each bucket."""


class InterTokenLatency:
    """Times of the first and the last tokens of one choice, and the longest between two chunks.

    Attributes:
        longest_gap: Seconds between the two chunks that were furthest apart; 0 before there were
            two.
    """

    __slots__ = ("_counter", "_first_at", "_last_at", "_longest_interval", "longest_gap")

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter
        self._first_at = 0.0
        self._last_at: float | None = None
        self.longest_gap = self._longest_interval = 0.0

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
            if seconds > self.longest_gap:
                self.longest_gap = seconds
                self._longest_interval = seconds / num_tokens
            counter.num_by_bucket[bisect_left(BOUNDS_SECONDS, seconds / num_tokens)] += num_tokens

    def show(self, labels: dict[str, str]) -> None:
        """Make the tokens of the longest gap the exemplar of their bucket, with `labels`."""
        if self.longest_gap:
            value = self._longest_interval
            bucket = bisect_left(BOUNDS_SECONDS, value)
            self._counter.exemplars[bucket] = Exemplar(labels, value, time.time())


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
            intervals.add_metric([model], _cumulative(counter), counter.seconds)
        yield tokens
        yield intervals


def _cumulative(
    counter: TokenCounter,
) -> list[tuple[str, float] | tuple[str, float, Exemplar]]:
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    total = 0
    names = (*map(str, BOUNDS_SECONDS), "+Inf")
    for name, count, shown in zip(names, counter.num_by_bucket, counter.exemplars, strict=True):
        total += count
        buckets.append((name, float(total)) if shown is None else (name, float(total), shown))
    return buckets


TOKEN_COUNTERS = TokenCounters()
"""The counters of this process."""
