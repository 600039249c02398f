"""What is measured, shown under vLLM's names: nothing is lost, added or measured twice."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pagewire_frontend.metrics import buckets as latency_bounds
from pagewire_frontend.metrics import load as load_gauges
from pagewire_frontend.metrics import requests as metrics
from pagewire_frontend.metrics import stages as stage_metrics
from pagewire_frontend.metrics.model_load import ModelLoad, total
from pagewire_frontend.metrics.timeline import CellTimeline
from pagewire_frontend.metrics.vllm_names import NAMES, Renaming, VllmNames

# The names that existing dashboards and autoscalers ask for.
WANTED = {
    *("num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason"),
    *("num_preemptions_total", "kv_cache_usage_perc", "cache_config_info"),
    *("prefix_cache_queries_total", "prefix_cache_hits_total"),
    *("external_prefix_cache_queries_total", "external_prefix_cache_hits_total"),
    *("prompt_tokens_total", "generation_tokens_total", "prompt_tokens_cached_total"),
    *("time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket"),
    *("request_time_per_output_token_seconds_bucket", "e2e_request_latency_seconds_bucket"),
    *("request_queue_time_seconds_bucket", "request_prefill_time_seconds_bucket"),
    *("request_decode_time_seconds_bucket", "request_inference_time_seconds_bucket"),
    *("request_success_total", "request_prompt_tokens_bucket"),
    *("request_generation_tokens_bucket", "request_params_n_bucket"),
    *("request_params_max_tokens_bucket", "iteration_tokens_total_bucket"),
    *("gpu_cache_usage_perc", "time_per_output_token_seconds_bucket"),
}


def shown(model):
    """Return name and labels, but the model's, to the value."""
    sources = (*metrics.MEASURED, *stage_metrics.MEASURED, *load_gauges.MEASURED)
    registry = CollectorRegistry()
    registry.register(VllmNames(sources, is_on=True))
    found = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            assert sample.labels["engine"] == "0"
            if sample.labels["model_name"] == model:
                rest = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
                found[sample.name.removeprefix("vllm:"), *sorted(rest.values())] = sample.value
    return found


def test_all_names_are_there_before_anything_has_happened():
    metrics.introduce("fresh")
    load_gauges.show_load("fresh", ModelLoad(num_blocks=8, block_size=4))
    found = shown("fresh")
    assert {name for name, *_ in found} >= WANTED
    assert {value for (name, *_), value in found.items() if name != "cache_config_info"} == {0}


def test_steps_are_those_that_schedulers_count():
    steps = (1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4)
    load = ModelLoad(steps_by_tokens=steps, num_step_tokens=100_000)
    two = total([load, ModelLoad(), load])
    assert (two.steps_by_tokens[3], two.num_step_tokens) == (4, 200_000)
    load_gauges.show_load("stepping", load)
    # Without a worker nothing is said: what was counted is not lost.
    load_gauges.show_load("stepping", ModelLoad())
    found, name = shown("stepping"), "iteration_tokens_total"
    bounds = ("1.0", "8.0", "64.0", "16384.0", "+Inf")
    assert [found[f"{name}_bucket", bound] for bound in bounds] == [1, 3, 3, 6, 10]
    assert (found[f"{name}_count",], found[f"{name}_sum",]) == (10, 100_000)


def test_gauges_say_what_the_cell_says():
    load = ModelLoad(
        num_running=3,
        num_waiting_for_capacity=1,
        num_waiting_for_worker=10,
        num_waiting_for_grammar=100,
        num_waiting_for_kv=1000,
        num_waiting_for_trial=10000,
        num_blocks=8,
        num_used_blocks=2,
        block_size=16,
    )
    load_gauges.show_load("busy", load)
    found = shown("busy")
    assert found["num_requests_running",] == 3
    assert found["num_requests_waiting",] == 11111
    assert found["num_requests_waiting_by_reason", "capacity"] == 11
    assert found["num_requests_waiting_by_reason", "deferred"] == 11100
    assert found["kv_cache_usage_perc",] == 0.25
    assert found["cache_config_info", "16", "8"] == 1


def test_a_model_without_workers_has_no_cache_config():
    load_gauges.show_load("idle", ModelLoad())
    assert not [key for key in shown("idle") if key[0] == "cache_config_info"]


def test_ends_have_the_words_of_vllm():
    metrics.introduce("ended")
    for count, reason in enumerate(("stop", "length", "aborted", "deadline", "failed"), start=1):
        metrics.choices_finished("ended", reason, 10**count)
    found = shown("ended")
    assert {key[1]: value for key, value in found.items() if key[0] == "request_success_total"} == {
        "stop": 10,
        "length": 100,
        "abort": 11000,
        "error": 100000,
    }


def test_tokens_of_stores_are_external():
    stages = stage_metrics.stages_of("tiers")
    stages.looked_up(100, 60, {"worker": 40, "disk": 15, "floppy": 5})
    stages.looked_up(10, 7, {})
    stages.looked_up(2, 3, {})  # what cannot be ends nothing
    found = shown("tiers")
    assert found["prefix_cache_queries_total",] == 112
    assert found["prefix_cache_hits_total",] == 50
    assert found["external_prefix_cache_queries_total",] == 63
    assert found["external_prefix_cache_hits_total",] == 20


def test_times_are_told_once_per_choice():
    stages = stage_metrics.stages_of("timed")
    cell = CellTimeline(queue_seconds=0.4, prefill_seconds=1.2, transfer_bytes=7, num_migrations=2)
    stages.choice_ended(cell, 3.0, 4)
    stages.choice_ended(cell, 0.0, 1)
    found = shown("timed")
    assert found["request_queue_time_seconds_sum",] == 0.8
    assert found["request_prefill_time_seconds_sum",] == 2.4
    assert found["request_decode_time_seconds_sum",] == 3.0
    assert found["request_inference_time_seconds_sum",] == pytest.approx(5.4)
    assert found["request_time_per_output_token_seconds_sum",] == 1.0
    assert found["request_time_per_output_token_seconds_count",] == 1, "one token takes no time"
    assert found["request_generation_tokens_sum",] == 5
    assert found["request_queue_time_seconds_bucket", "0.3"] == 0
    assert found["request_queue_time_seconds_bucket", "0.5"] == 2


def test_every_bound_of_vllm_is_measured():
    metrics.introduce("bounds")
    load_gauges.show_load("bounds", ModelLoad())
    measured = {
        family.name: {
            float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels
        }
        for source in (*metrics.MEASURED, *stage_metrics.MEASURED, *load_gauges.MEASURED)
        for family in source.collect()
    }
    for renaming in NAMES:
        assert set(renaming.bounds) <= measured.get(renaming.source, set()), renaming.name
    assert latency_bounds.VLLM_FIRST_TOKEN[-1] == 2560


def test_buckets_that_are_not_shown_change_nothing():
    registry = CollectorRegistry()
    histogram = Histogram("t_seconds", "T", ["model"], registry=registry, buckets=(1, 2, 3))
    for seconds in (0.5, 1.5, 2.5, 9.0):
        histogram.labels("m").observe(seconds)
    (source,) = histogram.collect()
    renaming = Renaming(
        source="t_seconds", name="v:t", text="T", labels={"model": "model_name"}, bounds=(2.0,)
    )
    samples = renaming.apply(source, {"engine": "0"}).samples
    assert [(one.name, one.labels.get("le"), one.value) for one in samples] == [
        ("v:t_bucket", "2.0", 2),
        ("v:t_bucket", "+Inf", 4),
        ("v:t_count", None, 4),
        ("v:t_sum", None, 13.5),
    ]


def test_labels_that_are_left_out_are_added_up():
    registry = CollectorRegistry()
    counter = Counter("t_ends", "T", ["model", "reason"], registry=registry)
    counter.labels("m", "a").inc(2)
    counter.labels("m", "b").inc(3)
    (source,) = counter.collect()
    labels = {"model": "model_name"}
    whole = Renaming(source="t_ends", name="v:ends", text="T", labels=labels)
    (sample,) = whole.apply(source, {}).samples
    assert (sample.name, sample.labels, sample.value) == ("v:ends_total", {"model_name": "m"}, 5)
    only = {"reason": frozenset({"b"})}
    part = Renaming(source="t_ends", name="v:ends", text="T", labels=labels, only=only)
    (sample,) = part.apply(source, {}).samples
    assert sample.value == 3


def test_a_process_that_does_not_want_them_shows_none():
    assert list(VllmNames(metrics.MEASURED).collect()) == []


def test_loads_of_several_cells_are_one():
    one = ModelLoad(num_running=1, num_blocks=10, num_used_blocks=5)
    two = ModelLoad(num_running=2, num_blocks=30, num_used_blocks=5, block_size=16)
    both = total((one, two))
    assert (both.num_running, both.kv_usage, both.block_size) == (3, 0.25, 16)
    assert total(()) == ModelLoad()
    assert ModelLoad().kv_usage == 0
