"""Shows the drafts of speculation on the metrics endpoint of a worker, under vLLM's names."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from pagewire_worker.speculation.draft_counts import DraftCounts


class DraftCollector(Collector):
    """Reads the counts of replicas when they are asked for, so that steps pay nothing for it."""

    def __init__(self) -> None:
        self._counts: dict[str, DraftCounts] = {}

    def show(self, model: str, counts: DraftCounts) -> None:
        """Show counts from now on."""
        self._counts[model] = counts

    def collect(self) -> Iterator[Metric]:
        """Yield the counters; without samples where nothing speculates."""
        times = _counter("num_drafts", "Times that drafts of a sequence were verified")
        drafts = _counter("num_draft_tokens", "Drafts that were verified")
        right = _counter("num_accepted_tokens", "Drafts that were right")
        places = _counter("num_accepted_tokens_per_pos", "Right drafts by place", "position")
        for model, counts in self._counts.items():
            times.add_metric([model], counts.num_verified)
            drafts.add_metric([model], counts.num_tokens)
            right.add_metric([model], int(counts.right_at.sum()))
            for place, count in enumerate(counts.right_at.tolist()):
                places.add_metric([model, str(place)], count)
        yield from (times, drafts, right, places)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"vllm:spec_decode_{name}", text, labels=["model_name", *labels])


DRAFTS: Final = DraftCollector()
REGISTRY.register(DRAFTS)
