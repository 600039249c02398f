"""Gauges of the load of models, set once a second from a LoadSource.

Metrics with `cell` in their names are the same in every process: group/exposition does not add
them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Protocol

from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pagewire_frontend.metrics.buckets import STEP
from pagewire_frontend.metrics.model_load import ModelLoad

_SECONDS = 1.0

READY = Gauge("pagewire_frontend_ready", "Whether a request would be answered now")
RUNNING = Gauge(
    "pagewire_running_sequences", "Sequences of this frontend that workers run", ["model"]
)
WAITING = Gauge(
    "pagewire_waiting_sequences",
    "Sequences of this frontend that wait, by what for",
    ["model", "reason"],
)
WORKERS = Gauge("pagewire_cell_workers", "Workers attached in all cells", ["model"])
BLOCKS = Gauge("pagewire_cell_kv_blocks", "KV blocks of all workers", ["model"])
USAGE = Gauge("pagewire_cell_kv_usage_ratio", "Share of them in use, 0 to 1", ["model"])
BLOCK_SIZE = Gauge("pagewire_cell_block_size", "Tokens per KV block", ["model"])


class StepSizes(Collector):
    """Histogram of the tokens per step, from counts that schedulers report."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[tuple[int, ...], int]] = {}

    def show(self, model: str, steps_by_tokens: tuple[int, ...], num_tokens: int) -> None:
        """Show these counts, one per bound of buckets.STEP and one for larger steps. While a cell
        reports none, its last counts stay."""
        if len(steps_by_tokens) == len(STEP) + 1:
            self._counts[model] = steps_by_tokens, num_tokens
        else:
            self._counts.setdefault(model, ((0,) * (len(STEP) + 1), 0))

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        shown = HistogramMetricFamily(
            "pagewire_cell_step_tokens", "Tokens that a step of a worker computes", labels=["model"]
        )
        names = [*map(str, STEP), "+Inf"]
        for model, (counts, num_tokens) in list(self._counts.items()):
            totals = map(float, accumulate(counts))
            shown.add_metric([model], list(zip(names, totals, strict=True)), num_tokens)
        yield shown


STEP_SIZES = StepSizes()
REGISTRY.register(STEP_SIZES)

MEASURED = (RUNNING, WAITING, WORKERS, BLOCKS, USAGE, BLOCK_SIZE, STEP_SIZES)

REASONS = ("capacity", "worker", "adapter", "grammar", "kv", "trial")


class LoadSource(Protocol):
    """Reports loads; SchedulerPool, without its links."""

    def load_of(self, model: str) -> ModelLoad: ...


async def show_loads(
    source: LoadSource, models: Iterable[str], is_ready: Callable[[], bool]
) -> None:
    """Keep the gauges of these models up to date, until cancelled."""
    names = list(models)
    while True:
        READY.set(is_ready())
        for name in names:
            show_load(name, source.load_of(name))
        await asyncio.sleep(_SECONDS)


def show_load(model: str, load: ModelLoad) -> None:
    """Set the gauges of one model."""
    RUNNING.labels(model).set(load.num_running)
    for reason in REASONS:
        WAITING.labels(model, reason).set(getattr(load, f"num_waiting_for_{reason}"))
    WORKERS.labels(model).set(load.num_workers)
    BLOCKS.labels(model).set(load.num_blocks)
    USAGE.labels(model).set(load.kv_usage)
    BLOCK_SIZE.labels(model).set(load.block_size)
    STEP_SIZES.show(model, load.steps_by_tokens, load.num_step_tokens)
