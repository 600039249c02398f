"""Shows our metrics under the names of vLLM's, for dashboards, alerts and autoscalers made for
vLLM. A view: measures nothing and costs nothing until metrics are collected.

docs/metrics.md lists the meaning of each name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from prometheus_client import REGISTRY
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pagewire_frontend.metrics import buckets as bounds
from pagewire_frontend.metrics import load as load_gauges
from pagewire_frontend.metrics import requests as metrics
from pagewire_frontend.metrics import stages as stage_metrics

_BUCKET: Final = "_bucket"
_CREATED: Final = "_created"


@dataclass(frozen=True, slots=True, kw_only=True)
class Renaming:
    """The rules that turn one metric into another.

    Attributes:
        source: Name of the metric that is measured, as prometheus-client names it: without _total.
        name: Name that it is shown under, likewise.
        labels: Labels that are shown, by the source's; others are left out and added up.
        words: Values of labels that have another word here; see `only`.
        only: Values of labels by the source's name; samples with others are left out.
        bounds: Upper bounds of the buckets that are shown, which the source has, too; all if empty.
    """

    source: str
    name: str
    text: str
    labels: Mapping[str, str]
    words: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, frozenset[str]] = field(default_factory=dict)
    bounds: tuple[float, ...] = ()

    def apply(self, source: Metric, constants: Mapping[str, str]) -> Metric:
        """Return `source` as it is shown, with `constants` as further labels."""
        shown = Metric(self.name, self.text, source.type)
        values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        for sample in source.samples:
            if not self._is_shown(sample.name, sample.labels):
                continue
            labels = {**self._labels(sample.labels), **constants}
            name = self.name + sample.name[len(self.source) :]
            key = name, tuple(labels.items())
            values[key] = values.get(key, 0.0) + sample.value
        for (name, items), value in values.items():
            shown.add_sample(name, dict(items), value)
        return shown

    def _is_shown(self, name: str, labels: Mapping[str, str]) -> bool:
        if name.endswith(_CREATED):
            return False
        if any(labels.get(label) not in values for label, values in self.only.items()):
            return False
        is_bucket = name == self.source + _BUCKET and bool(self.bounds)
        return not is_bucket or float(labels["le"]) in (*self.bounds, float("inf"))

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        shown = {
            theirs: self.words.get(labels[ours], labels[ours])
            for ours, theirs in self.labels.items()
        }
        return {**shown, **({"le": labels["le"]} if "le" in labels else {})}


def by_name(metrics: Iterable[Metric]) -> dict[str, Metric]:
    """Return metrics by their names."""
    return {metric.name: metric for metric in metrics}


ENGINE: Final[Mapping[str, str]] = MappingProxyType({"engine": "0"})
"""A cell counts as one engine, over all its workers."""

CACHE_CONFIG: Final = "vllm:cache_config_info"

_MODEL: Final = {"model": "model_name"}
_ENDS: Final = {"aborted": "abort", "deadline": "abort", "failed": "error"}
_WAITS: Final = {
    "worker": "capacity",
    "adapter": "deferred",
    "grammar": "deferred",
    "kv": "deferred",
    "trial": "deferred",
}
_STORES: Final = {"tier": frozenset({"memory", "disk", "redis", "other"})}


def _renaming(name: str, source: str, text: str, buckets: tuple[float, ...] = ()) -> Renaming:
    return Renaming(
        source=f"pagewire_{source}",
        name=f"vllm:{name}",
        text=text,
        labels=_MODEL,
        bounds=buckets,
    )


NAMES: Final = (
    _renaming("num_requests_running", "running_sequences", "Requests that are worked on"),
    _renaming("num_requests_waiting", "waiting_sequences", "Requests that wait"),
    Renaming(
        source="pagewire_waiting_sequences",
        name="vllm:num_requests_waiting_by_reason",
        text="Requests that wait, by why",
        labels={**_MODEL, "reason": "reason"},
        words=_WAITS,
    ),
    _renaming("kv_cache_usage_perc", "cell_kv_usage_ratio", "KV cache in use; 1 is all of it"),
    # As it was called before 0.10.
    _renaming("gpu_cache_usage_perc", "cell_kv_usage_ratio", "KV cache in use; 1 is all of it"),
    _renaming(
        "iteration_tokens_total",
        "cell_step_tokens",
        "Tokens that a step computes",
        bounds.VLLM_STEP,
    ),
    _renaming("num_preemptions", "preemptions", "Requests that gave way to others"),
    _renaming("prefix_cache_queries", "prefix_queried_tokens", "Tokens looked up in the cache"),
    Renaming(
        source="pagewire_prefix_tokens",
        name="vllm:prefix_cache_hits",
        text="Tokens found in the cache",
        labels=_MODEL,
        only={"tier": frozenset({"device"})},
    ),
    _renaming(
        "external_prefix_cache_queries",
        "prefix_not_in_worker_tokens",
        "Tokens looked up in KV stores",
    ),
    Renaming(
        source="pagewire_prefix_tokens",
        name="vllm:external_prefix_cache_hits",
        text="Tokens found in KV stores",
        labels=_MODEL,
        only=_STORES,
    ),
    _renaming("prompt_tokens", "prompt_tokens", "Tokens of prompts"),
    _renaming("prompt_tokens_cached", "cached_prompt_tokens", "Those that were not computed"),
    _renaming("generation_tokens", "generation_tokens", "Tokens generated"),
    Renaming(
        source="pagewire_finished_choices",
        name="vllm:request_success",
        text="Requests that have ended, by why",
        labels={**_MODEL, "reason": "finished_reason"},
        words=_ENDS,
    ),
    _renaming(
        "time_to_first_token_seconds",
        "time_to_first_token_seconds",
        "Time to the first token",
        bounds.VLLM_FIRST_TOKEN,
    ),
    _renaming(
        "inter_token_latency_seconds",
        "inter_token_latency_seconds",
        "Time between two tokens",
        bounds.VLLM_TOKEN,
    ),
    # As it was called before 0.11.
    _renaming(
        "time_per_output_token_seconds",
        "inter_token_latency_seconds",
        "Time between two tokens",
        bounds.VLLM_TOKEN,
    ),
    _renaming(
        "request_time_per_output_token_seconds",
        "time_per_output_token_seconds",
        "Mean time between the tokens of a request",
        bounds.VLLM_TOKEN,
    ),
    *(
        _renaming(name, source, text, bounds.VLLM_REQUEST)
        for name, source, text in (
            ("e2e_request_latency_seconds", "generation_seconds", "Time of a request"),
            ("request_queue_time_seconds", "queue_seconds", "Time spent waiting"),
            ("request_prefill_time_seconds", "prefill_seconds", "Time of the prompt"),
            ("request_decode_time_seconds", "decode_seconds", "Time of the output"),
            ("request_inference_time_seconds", "inference_seconds", "Time of both"),
        )
    ),
    _renaming("request_prompt_tokens", "request_prompt_tokens", "Length of prompts"),
    _renaming("request_generation_tokens", "request_generation_tokens", "Length of outputs"),
    _renaming("request_params_n", "request_choices", "Parameter n", bounds.VLLM_CHOICES),
    _renaming("request_params_max_tokens", "request_max_tokens", "Parameter max_tokens"),
)


class VllmNames(Collector):
    """Shows the metrics of `sources` under vLLM's names, while it `is_on`."""

    def __init__(self, sources: Iterable[Collector], *, is_on: bool = False) -> None:
        self._sources = tuple(sources)
        self.is_on = is_on

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        if not self.is_on:
            return
        found = by_name(metric for source in self._sources for metric in source.collect())
        for renaming in NAMES:
            yield renaming.apply(found[renaming.source], ENGINE)
        yield _cache_config(found)


def _cache_config(found: Mapping[str, Metric]) -> Metric:
    """Return block size and number as labels, as vLLM does; models without workers are left out."""
    shown = GaugeMetricFamily(
        CACHE_CONFIG,
        "Block size and number of KV blocks, as labels",
        labels=["model_name", "engine", "block_size", "num_gpu_blocks"],
    )
    counts = _by_model(found["pagewire_cell_kv_blocks"])
    for model, size in _by_model(found["pagewire_cell_block_size"]).items():
        if size:
            labels = [model, ENGINE["engine"], str(size), str(counts.get(model, 0))]
            shown.add_metric(labels, 1)
    return shown


def _by_model(metric: Metric) -> dict[str, int]:
    return {sample.labels["model"]: int(sample.value) for sample in metric.samples}


VLLM_NAMES: Final = VllmNames((*metrics.MEASURED, *stage_metrics.MEASURED, *load_gauges.MEASURED))
"""The renamed metrics of this process."""

REGISTRY.register(VLLM_NAMES)
