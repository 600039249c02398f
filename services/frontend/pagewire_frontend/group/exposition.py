"""Adds up the metrics of several processes: texts in either format of `metrics/formats`, in and
out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from pagewire_frontend.metrics.formats import families_in, written

# Times of day cannot be added; the group is as old as its oldest process.
_LEAST = frozenset({"process_start_time_seconds"})
GREATEST = frozenset(
    {
        *("pagewire_cell_workers", "pagewire_cell_kv_blocks", "pagewire_cell_kv_usage_ratio"),
        *("pagewire_cell_block_size", "pagewire_cell_step_tokens"),
        *("pagewire_build_info", "python_info"),
        *("vllm:kv_cache_usage_perc", "vllm:cache_config_info", "vllm:iteration_tokens_total"),
        *("vllm:gpu_cache_usage_perc", "vllm:lora_requests_info"),
    }
)
"""Metrics that every process reports of the same thing, such as the cell."""

_CREATED = "_created"
_ADDED_TYPES = frozenset({"counter", "gauge", "histogram", "summary", "unknown", "untyped"})

_Labels = tuple[tuple[str, str], ...]


class _Given(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield the families."""
        yield from self._families


def summed(
    expositions: Sequence[str],
    extra_gauges: Mapping[str, tuple[str, float]],
    *,
    is_open: bool = False,
) -> str:
    """Return one exposition with the sum of every sample over `expositions`.

    Counters, histograms and gauges are added, bucket by bucket and label by label; creation times
    of series are left out. Of the start times the first is kept, and of metrics that all processes
    report of the cell, its workers and blocks, the greatest.

    Args:
        expositions: One per process, which ran the same version: buckets must have equal bounds.
        extra_gauges: Name to (help, value), added at the end; replaces what was given under it.
        is_open: Write OpenMetrics, with the newest exemplar of each sample.

    Raises:
        ValueError: A text is not an exposition.
    """
    families: dict[str, Metric] = {}
    values: dict[str, dict[tuple[str, _Labels], float]] = {}
    exemplars: dict[tuple[str, _Labels], Exemplar] = {}
    for family in _families(expositions):
        if family.name in extra_gauges or _is_creation(family):
            continue
        families.setdefault(family.name, family)
        _add(values.setdefault(family.name, {}), family)
        _note_exemplars(exemplars, family)
    merged = [_merged(families[name], samples, exemplars) for name, samples in values.items()]
    for name, (text, value) in extra_gauges.items():
        merged.append(GaugeMetricFamily(name, text, value=value))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(merged))
    return written(registry, is_open=is_open)


def _families(expositions: Iterable[str]) -> Iterator[Metric]:
    for text in expositions:
        yield from families_in(text)


def _is_creation(family: Metric) -> bool:
    return family.type not in _ADDED_TYPES or family.name.endswith(_CREATED)


def _add(values: dict[tuple[str, _Labels], float], family: Metric) -> None:
    for sample in family.samples:
        if sample.name.endswith(_CREATED):
            continue
        key = sample.name, tuple(sorted(sample.labels.items()))
        if family.name in _LEAST:
            values[key] = min(values.get(key, sample.value), sample.value)
        elif family.name in GREATEST:
            values[key] = max(values.get(key, sample.value), sample.value)
        else:
            values[key] = values.get(key, 0.0) + sample.value


def _note_exemplars(newest: dict[tuple[str, _Labels], Exemplar], family: Metric) -> None:
    for sample in family.samples:
        if sample.exemplar is None:
            continue
        key = sample.name, tuple(sorted(sample.labels.items()))
        if key not in newest or _instant(newest[key]) < _instant(sample.exemplar):
            newest[key] = sample.exemplar


def _instant(exemplar: Exemplar) -> float:
    return float(exemplar.timestamp or 0.0)


def _merged(
    family: Metric,
    samples: Mapping[tuple[str, _Labels], float],
    exemplars: Mapping[tuple[str, _Labels], Exemplar],
) -> Metric:
    whole = Metric(family.name, family.documentation, family.type)
    for (name, labels), value in samples.items():
        whole.add_sample(name, dict(labels), value, exemplar=exemplars.get((name, labels)))
    return whole
