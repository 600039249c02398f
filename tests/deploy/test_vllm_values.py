"""vLLM's names at a real deployment, compared with what its client measured."""

from collections.abc import Iterator

import httpx
import pytest
from deploy.measured_requests import Measured, ask_all
from prometheus_client.parser import text_string_to_metric_families

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import wait_until

NUM_TOKENS = 12
BLOCK_SIZE = 16
Shown = dict[tuple[str, ...], float]
SHARED = "one two three four five six seven eight nine ten "


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("vllm") / "model")
    cluster = start_cluster(checkpoint, max_model_len=512, block_size=BLOCK_SIZE)
    yield cluster
    cluster.local.stop()


@pytest.fixture(scope="module")
def measured(cluster: Cluster) -> list[Measured]:
    """Two waves, of which the second finds the beginning of its prompts in the cache."""
    prompts = [SHARED + "x" * number for number in range(6)]
    waves = [ask_all(cluster.http_url, cluster.model, prompts, NUM_TOKENS) for _ in range(2)]
    return [one for wave in waves for one in wave]


@pytest.fixture(scope="module")
def shown(cluster: Cluster, measured: list[Measured]) -> Shown:
    """Name and further labels to the value, after all requests were answered."""
    assert measured
    return vllm_metrics(cluster)


def vllm_metrics(cluster: Cluster) -> Shown:
    text = httpx.get(f"{cluster.http_url}/metrics", timeout=10).text
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("vllm:"):
                assert sample.labels.pop("model_name") == cluster.model
                assert sample.labels.pop("engine") == "0"
                labels = sorted(sample.labels.values())
                found[sample.name.removeprefix("vllm:"), *labels] = sample.value
    return found


def test_tokens_and_requests_are_counted_exactly(shown: Shown, measured: list[Measured]) -> None:
    num_prompt = sum(one.usage["prompt_tokens"] for one in measured)
    num_generated = sum(one.usage["completion_tokens"] for one in measured)
    num_cached = sum(one.num_cached for one in measured)
    assert num_generated == len(measured) * NUM_TOKENS
    assert num_cached > 0
    assert shown["prompt_tokens_total",] == num_prompt
    assert shown["generation_tokens_total",] == num_generated
    assert shown["prompt_tokens_cached_total",] == num_cached
    assert shown["prefix_cache_queries_total",] == num_prompt
    hits = shown["prefix_cache_hits_total",], shown["external_prefix_cache_hits_total",]
    assert sum(hits) == num_cached
    assert shown["external_prefix_cache_queries_total",] == num_prompt - hits[0]
    assert shown["request_success_total", "length"] == len(measured)
    assert shown["request_success_total", "stop"] == shown["request_success_total", "abort"] == 0
    assert shown["request_success_total", "error"] == 0


def test_every_request_is_in_every_histogram(shown: Shown, measured: list[Measured]) -> None:
    histograms = {name for name, *_ in shown if name.endswith("_count")}
    per_token = {"inter_token_latency_seconds_count", "time_per_output_token_seconds_count"}
    per_request = histograms - per_token - {"iteration_tokens_total_count"}
    assert len(per_request) == 11
    assert {shown[name,] for name in per_request} == {len(measured)}
    assert {shown[name,] for name in per_token} == {len(measured) * (NUM_TOKENS - 1)}
    assert shown["request_params_max_tokens_sum",] == len(measured) * NUM_TOKENS
    assert shown["request_params_n_sum",] == len(measured)
    assert shown["request_prompt_tokens_sum",] == shown["prompt_tokens_total",]
    assert shown["request_generation_tokens_sum",] == shown["generation_tokens_total",]


def test_times_lie_within_those_of_the_client(shown: Shown, measured: list[Measured]) -> None:
    first = shown["time_to_first_token_seconds_sum",]
    whole = shown["e2e_request_latency_seconds_sum",]
    decode = shown["request_decode_time_seconds_sum",]
    assert 0 < first < sum(one.first_seconds for one in measured)
    assert first + decode < whole < sum(one.total_seconds for one in measured)
    assert shown["inter_token_latency_seconds_sum",] == pytest.approx(decode)
    inside = shown["request_prefill_time_seconds_sum",] + shown["request_queue_time_seconds_sum",]
    assert 0 < inside < first
    inference = shown["request_inference_time_seconds_sum",]
    assert inference == pytest.approx(decode + shown["request_prefill_time_seconds_sum",])


def test_an_idle_cell_runs_nothing_and_says_how_large_it_is(cluster: Cluster) -> None:
    # The cell tells it once a second.
    shown = wait_until(lambda: told(cluster), 10, "the cell is known, and idle")
    assert shown["num_requests_waiting",] == 0
    assert shown["num_preemptions_total",] == 0
    assert shown["kv_cache_usage_perc",] == 0
    (info,) = [key for key in shown if key[0] == "cache_config_info"]
    assert str(BLOCK_SIZE) in info[1:]
    blocks = next(int(label) for label in info[1:] if label != str(BLOCK_SIZE))
    assert blocks > 1


def test_steps_compute_each_token_once(cluster: Cluster, measured: list[Measured]) -> None:
    num_prompt = sum(one.usage["prompt_tokens"] - one.num_cached for one in measured)
    # The last token of an output is sampled and not computed.
    num_computed = num_prompt + len(measured) * (NUM_TOKENS - 1)

    def is_told() -> bool:
        return vllm_metrics(cluster)["iteration_tokens_total_sum",] == num_computed

    wait_until(is_told, 10, f"steps of {num_computed} tokens are shown")
    shown = vllm_metrics(cluster)
    assert 0 < shown["iteration_tokens_total_count",] < num_computed
    assert shown["iteration_tokens_total_bucket", "+Inf"] == shown["iteration_tokens_total_count",]


def told(cluster: Cluster) -> Shown | None:
    """Return the metrics once they have what a cell says that has nothing to do."""
    found = vllm_metrics(cluster)
    is_known = any(name == "cache_config_info" for name, *_ in found)
    # The cell may have last spoken when a request had arrived and not yet begun to run.
    is_idle = found["num_requests_running",] == found["num_requests_waiting",] == 0
    return found if is_known and is_idle else None
