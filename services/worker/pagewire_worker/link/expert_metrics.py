"""Shows the tokens of experts on the metrics endpoint of a worker."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pagewire_worker.backend.expert_counts import ExpertCounts


class ExpertCollector(Collector):
    """Reads the counts of replicas when they are asked for, so that steps pay nothing for it."""

    def __init__(self) -> None:
        self._counts: dict[str, ExpertCounts] = {}

    def show(self, model: str, counts: ExpertCounts) -> None:
        """Show counts from now on."""
        self._counts[model] = counts

    def collect(self) -> Iterator[Metric]:
        """Yield both metrics; without samples where nothing is counted."""
        tokens = CounterMetricFamily(
            "pagewire_worker_expert_tokens",
            "Tokens that an expert has computed",
            labels=["model", "layer", "expert"],
        )
        imbalance = GaugeMetricFamily(
            "pagewire_worker_expert_imbalance",
            "Tokens of the busiest expert of a layer, divided by the mean of its experts",
            labels=["model", "layer"],
        )
        for model, counts in self._counts.items():
            for layer, found in counts.tokens.items():
                for expert, count in enumerate(found.tolist()):
                    tokens.add_metric([model, str(layer), str(expert)], count)
                imbalance.add_metric([model, str(layer)], counts.imbalance(layer))
        yield tokens
        yield imbalance


EXPERTS: Final = ExpertCollector()
REGISTRY.register(EXPERTS)
