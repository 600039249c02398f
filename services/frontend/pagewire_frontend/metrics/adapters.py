"""Metrics of LoRA adapters: names, content and loads, and vLLM's lora_requests_info."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import REGISTRY, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.adapters.store_client import FAILED, LEFT_OUT, PRESENT, REFUSED, WRITTEN
from pagewire_frontend.metrics.vllm_names import VLLM_NAMES

INFO: Final = "vllm:lora_requests_info"

MAX_NAMES: Final = 64
"""Adapters that a label of INFO names."""

_SECONDS: Final = 1.0

_NAMES = Gauge("pagewire_adapters", "LoRA adapters by name")
_BYTES = Gauge("pagewire_adapter_store_bytes", "Bytes of the content of LoRA adapters")
_MOST = Gauge("pagewire_adapter_store_limit_bytes", "Most bytes of that content")
_LOADS = Counter("pagewire_adapter_loads", "Loads of LoRA adapters by name", ["outcome"])
_WRITES = Counter("pagewire_adapter_writes", "Writes of adapters to KV stores", ["outcome"])
for _outcome in ("loaded", "refused"):
    _LOADS.labels(_outcome)
for _outcome in (WRITTEN, PRESENT, REFUSED, FAILED, LEFT_OUT):
    _WRITES.labels(_outcome)


class LoraRequestsInfo(Collector):
    """vLLM's gauge of the adapters of running and waiting requests: labels, and the time as value
    (vllm/engine/metrics.py, labelname_running_lora_adapters). Shown while there are adapters."""

    def __init__(self) -> None:
        self._labels: list[str] | None = None

    def show(self, most: int, running: Iterable[str], waiting: Iterable[str]) -> None:
        """Show the names of adapters, and the adapter slots of a worker."""
        names = (sorted(set(some))[:MAX_NAMES] for some in (running, waiting))
        self._labels = [str(most), *(",".join(some) for some in names)]

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        shown = GaugeMetricFamily(
            INFO,
            "LoRA adapters of running and waiting requests",
            labels=["max_lora", "running_lora_adapters", "waiting_lora_adapters"],
        )
        if self._labels is not None and VLLM_NAMES.is_on:
            shown.add_metric(self._labels, time.time())
        yield shown


LORA_REQUESTS: Final = LoraRequestsInfo()
REGISTRY.register(LORA_REQUESTS)


def note_load(is_loaded: bool) -> None:
    """Count a load."""
    _LOADS.labels("loaded" if is_loaded else "refused").inc()


def note_write(outcome: str) -> None:
    """Count a write of an adapter to a KV store."""
    _WRITES.labels(outcome).inc()


async def show_adapters(
    adapters: AdapterRegistry,
    used: Callable[[], tuple[Iterable[str], Iterable[str]]],
    num_slots: Callable[[], int],
) -> None:
    """Keep the gauges up to date, until cancelled.

    Args:
        used: Returns the names of adapters of running and of waiting requests.
        num_slots: Returns the adapter slots of a worker.
    """
    while True:
        if adapters.store is not None:
            _NAMES.set(len(adapters))
            _BYTES.set(adapters.store.num_bytes)
            _MOST.set(adapters.store.max_bytes)
            LORA_REQUESTS.show(num_slots(), *used())
        await asyncio.sleep(_SECONDS)
