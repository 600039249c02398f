"""Speculation in real processes: the answers are those without it, through hand-offs and kills."""

import asyncio
import os
import random
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import pytest

from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.draft_heads import head_config, knowing_head, write_head
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import free_ports
from support.traffic.mixed_requests import ask_mixed, assert_equal, make_requests
from support.traffic.streams import Stream, completion, eventually_clean, follow_all

pytestmark = needs_kernels

ALWAYS = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1, "adaptive": False}
NUM_MIXED = 70
NUM_STREAMS, NUM_TOKENS = 6, 100
NUM_PROCESSES = 6
NUM_WORKERS = 3
ACCEPTED = re.compile(r"^vllm:spec_decode_num_accepted_tokens_total\{.*\} (\S+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def first_port() -> int:
    return free_ports(NUM_PROCESSES)


def head_of(folder: Path) -> Path:
    """A head that guesses what the model would say of an embedding alone, right at times."""
    return write_head(folder, head_config("eagle"), knowing_head("eagle", {}))


@pytest.fixture(
    scope="module",
    params=[
        "ngram",
        pytest.param("draft", marks=pytest.mark.long),
        pytest.param("head", marks=(pytest.mark.long, pytest.mark.whole)),
    ],
)
def speculative(
    request: pytest.FixtureRequest,
    tiny_checkpoint: Path,
    first_port: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Cluster]:
    """A worker for prompts and two for tokens, all of which verify drafts."""
    drafted = {"model": str(tiny_checkpoint), "num_speculative_tokens": 4, "adaptive": False}
    if request.param == "head":
        head = head_of(tmp_path_factory.mktemp("head"))
        drafted |= {"method": "eagle", "model": str(head)}
    cluster = start_cluster(
        tiny_checkpoint,
        prefill_workers=1,
        decode_workers=2,
        handoff="always",
        speculative_config=ALWAYS if request.param == "ngram" else drafted,
        metrics_port=first_port,
    )
    yield cluster
    cluster.local.stop()


def num_accepted(first_port: int) -> float:
    pages = [f"http://127.0.0.1:{first_port + one}/metrics" for one in range(NUM_PROCESSES)]
    return sum(float(one) for page in pages for one in ACCEPTED.findall(httpx.get(page).text))


def streams_of(model: str) -> list[inference_pb2.CompleteRequest]:
    """Half greedy, half sampled; prompts that repeat."""
    dice = random.Random(4)
    prompts = [dice.choices(range(3, 500), k=6) * 5 for _ in range(NUM_STREAMS)]
    return [
        completion(model, prompt, NUM_TOKENS, **({"temperature": 1.0, "seed": 3} if at % 2 else {}))
        for at, prompt in enumerate(prompts)
    ]


def test_every_kind_of_request_has_the_same_answer(speculative: Cluster, cluster: Cluster) -> None:
    """Choices, grammars, beams, log-probabilities and penalties, with prompts handed off."""
    requests = make_requests(NUM_MIXED, seed=5)
    expected = asyncio.run(ask_mixed(cluster, requests))
    answers = asyncio.run(ask_mixed(speculative, requests))
    assert_equal(requests, answers, expected)
    asyncio.run(eventually_clean(speculative.grpc_address, NUM_WORKERS, 60.0))


def ask(cluster: Cluster, **body: object) -> dict[str, Any]:
    fields = {"temperature": 0, "max_tokens": 60, "seed": 1, **body}
    messages = [{"role": "user", "content": "go on"}]
    url = f"{cluster.http_url}/v1/chat/completions"
    answer = httpx.post(url, json={"messages": messages, **fields}, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_prediction_is_counted_and_changes_nothing(
    speculative: Cluster, cluster: Cluster
) -> None:
    expected = ask(cluster)
    said = expected["choices"][0]["message"]["content"]
    predictions = [{"type": "content", "content": said}, {"type": "content", "content": said[::-1]}]
    for one in (cluster, speculative):
        assert "completion_tokens_details" not in ask(one)["usage"]
        answers = [ask(one, prediction=prediction) for prediction in predictions]
        assert [answer["choices"] for answer in answers] == [expected["choices"]] * 2
        counts = [list(one["usage"]["completion_tokens_details"].values()) for one in answers]
        assert (counts[0][0] > 0) == (one is speculative)
        assert one is speculative or counts == [[0, 0], [0, 0]]


async def follow_with_kill(cluster: Cluster) -> list[Stream]:
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in streams_of(cluster.model)]
        followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        while min(len(stream.token_ids) for stream in streams) < 4:
            await asyncio.sleep(0.001)
        # Workers of one role are started together, so both ids are of workers for tokens.
        for pid in cluster.processes["worker"][-2:]:
            os.kill(pid, signal.SIGKILL)
        await asyncio.wait_for(asyncio.gather(*followers), 90)
    return streams


def test_streams_go_on_when_workers_are_killed(
    speculative: Cluster, cluster: Cluster, first_port: int
) -> None:
    expected = asyncio.run(follow_all(cluster.grpc_address, streams_of(cluster.model)))
    calm = asyncio.run(follow_all(speculative.grpc_address, streams_of(cluster.model)))
    assert [one.token_ids for one in calm] == [one.token_ids for one in expected]
    assert num_accepted(first_port) > 0
    found = asyncio.run(follow_with_kill(speculative))
    assert [one.error for one in found] == [""] * NUM_STREAMS
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert any(one.num_recoveries for one in found)
    asyncio.run(eventually_clean(speculative.grpc_address, NUM_WORKERS, 60.0))
