"""Request metrics of a frontend, for its metrics endpoints: one place for HTTP and gRPC.

Labels take known names only: models that are configured, endpoints that exist, the few reasons of
an end. Seconds are of time.monotonic().
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from pagewire_frontend.metrics import buckets as latency_bounds
from pagewire_frontend.metrics.formats import written
from pagewire_frontend.metrics.stages import stages_of
from pagewire_frontend.metrics.tokens import TOKEN_COUNTERS

_REQUESTS = Counter(
    "pagewire_requests", "Requests answered, by their status", ["protocol", "endpoint", "status"]
)
_REQUESTS_OPEN = Gauge("pagewire_requests_in_flight", "Requests not answered yet", ["protocol"])
_GENERATIONS_OPEN = Gauge(
    "pagewire_generations_in_flight", "Prompts that are queued or worked on", ["model"]
)
_PROMPT_TOKENS = Counter("pagewire_prompt_tokens", "Tokens of prompts that were begun", ["model"])
_CACHED_TOKENS = Counter(
    "pagewire_cached_prompt_tokens", "Part of them found in the prefix cache", ["model"]
)
_FIRST_TOKEN = Histogram(
    "pagewire_time_to_first_token_seconds",
    "From a request's arrival to its first token",
    ["model"],
    buckets=latency_bounds.FIRST_TOKEN,
)
_WHOLE = Histogram(
    "pagewire_generation_seconds",
    "From a request's arrival to its end, of those that ended by themselves",
    ["model"],
    buckets=latency_bounds.REQUEST,
)
_FINISHED = Counter("pagewire_finished_choices", "Choices by why they ended", ["model", "reason"])
_RESUMES = Counter("pagewire_resumes", "Requests submitted again after a loss", ["model"])


MEASURED = (_PROMPT_TOKENS, _CACHED_TOKENS, _FIRST_TOKEN, _WHOLE, _FINISHED, TOKEN_COUNTERS)
"""Metrics that are shown under vLLM's names, too."""

_REASONS = ("stop", "length", "aborted", "deadline", "failed")


def introduce(model: str) -> None:
    """Show the metrics of a configured model from now on, as zeros: rate() ignores a counter's
    first sample."""
    by_model = (_GENERATIONS_OPEN, _PROMPT_TOKENS, _CACHED_TOKENS, _FIRST_TOKEN, _WHOLE, _RESUMES)
    for metric in by_model:
        metric.labels(model)
    for reason in _REASONS:
        _FINISHED.labels(model, reason)
    TOKEN_COUNTERS.of(model)
    stages_of(model)


def own_exposition(is_open: bool = False) -> str:
    """Return the metrics of this process in Prometheus' text format, version 0.0.4, or `is_open` in
    OpenMetrics with exemplars."""
    return written(REGISTRY, is_open=is_open)


@dataclass(slots=True)
class RequestTimer:
    """One HTTP or gRPC request and its answer; its handler fills in the status.

    Attributes:
        endpoint: A known name; never what a client made up.
        status: HTTP status, or the name of the gRPC status.
    """

    endpoint: str
    status: str


@contextlib.contextmanager
def counted(protocol: str, exchange: RequestTimer) -> Iterator[None]:
    """Count a request as in flight, and at its end under the endpoint and status of `exchange`."""
    _REQUESTS_OPEN.labels(protocol).inc()
    try:
        yield
    finally:
        _REQUESTS_OPEN.labels(protocol).dec()
        _REQUESTS.labels(protocol, exchange.endpoint, exchange.status).inc()


def generation_opened(model: str) -> None:
    """Count an accepted prompt."""
    _GENERATIONS_OPEN.labels(model).inc()


def first_output(
    model: str,
    *,
    num_prompt_tokens: int,
    num_cached_tokens: int,
    seconds: float | None,
    exemplar: dict[str, str] | None = None,
) -> None:
    """Count the first output of a prompt; `seconds` since its arrival, None for a vector.
    `exemplar` names its trace."""
    _PROMPT_TOKENS.labels(model).inc(num_prompt_tokens)
    _CACHED_TOKENS.labels(model).inc(num_cached_tokens)
    if seconds is not None:
        _FIRST_TOKEN.labels(model).observe(seconds, exemplar)


def choices_finished(model: str, reason: str, count: int = 1) -> None:
    """Count choices that ended."""
    _FINISHED.labels(model, reason).inc(count)


def generation_closed(
    model: str, *, num_resumes: int, seconds: float | None, exemplar: dict[str, str] | None = None
) -> None:
    """Count the end of a prompt; `seconds` since its arrival, None when it was broken off.
    `exemplar` names its trace."""
    _GENERATIONS_OPEN.labels(model).dec()
    if num_resumes:
        _RESUMES.labels(model).inc(num_resumes)
    if seconds is not None:
        _WHOLE.labels(model).observe(seconds, exemplar)


REGISTRY.register(TOKEN_COUNTERS)
