"""kill -9 of a worker or the scheduler under 16 open streams: every stream ends with the
undisturbed run's tokens, without a gap, and nothing is left behind."""

import asyncio
import os
import random
import signal
from collections.abc import Iterator

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.products import WHOLE
from support.traffic.streams import Stream, completion, eventually_clean, follow_all

NUM_STREAMS = 16
NUM_TOKENS = 200
NUM_WORKERS = 2
SEEDS_IN_SHORT_RUN = 3


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers in float32. The model is large enough for a stream to last a second or more."""
    folder = make_checkpoint(
        tmp_path_factory.mktemp("kills") / "model",
        architecture="Qwen3ForCausalLM",
        hidden=256,
        layers=4,
    )
    cluster = start_cluster(
        folder,
        num_workers=NUM_WORKERS,
        dtype="float32",
        block_size=8,
        max_num_seqs=32,
        max_num_batched_tokens=128,
        kv_cache_memory=64 << 20,
    )
    yield cluster
    cluster.local.stop()


def requests(model: str) -> list[inference_pb2.CompleteRequest]:
    """Half greedy, half sampled with a seed; prompts of 5 to 120 tokens."""
    generator = random.Random(3)
    result = []
    for index in range(NUM_STREAMS):
        prompt = [generator.randrange(3, 512) for _ in range(generator.randrange(5, 120))]
        sampling = {} if index % 2 else {"temperature": 1.0, "seed": index}
        result.append(completion(model, prompt, NUM_TOKENS, **sampling))
    return result


@pytest.fixture(scope="module")
def undisturbed(pair: Cluster) -> list[list[int]]:
    streams = asyncio.run(follow_all(pair.grpc_address, requests(pair.model)))
    assert [s.error for s in streams] == [""] * NUM_STREAMS
    assert all(len(s.token_ids) == NUM_TOKENS for s in streams)
    return [s.token_ids for s in streams]


async def run_with_kill(cluster: Cluster, role: str, seed: int) -> list[Stream]:
    """Follow all streams; kill one process once every stream has 4 tokens and none has ended."""
    generator = random.Random(f"{role}{seed}")
    wanted = generator.randrange(4, NUM_TOKENS // 5)
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in requests(cluster.model)]
        followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        while min(len(stream.token_ids) for stream in streams) < wanted:
            await asyncio.sleep(0.001)
        lengths = [len(stream.token_ids) for stream in streams]
        assert min(lengths) >= 4
        assert max(lengths) < NUM_TOKENS, "a stream ended before the kill"
        assert not any(stream.is_closed for stream in streams)
        os.kill(generator.choice(cluster.processes[role]), signal.SIGKILL)
        await asyncio.wait_for(asyncio.gather(*followers), 60)
    return streams


@pytest.mark.parametrize(
    "seed",
    [
        *range(SEEDS_IN_SHORT_RUN),
        *(pytest.param(seed, marks=WHOLE) for seed in range(SEEDS_IN_SHORT_RUN, 20)),
    ],
)
@pytest.mark.parametrize("role", ["worker", "scheduler"])
def test_streams_go_on_when_a_process_is_killed(
    pair: Cluster, undisturbed: list[list[int]], role: str, seed: int
) -> None:
    asyncio.run(eventually_clean(pair.grpc_address, NUM_WORKERS, timeout_seconds=30))
    streams = asyncio.run(run_with_kill(pair, role, seed))
    assert [s.error for s in streams] == [""] * NUM_STREAMS
    assert all(s.is_closed for s in streams)
    for index, (stream, expected) in enumerate(zip(streams, undisturbed, strict=True)):
        assert stream.token_ids == expected, f"stream {index}"
    if role == "scheduler":
        assert all(s.num_resumes >= 1 for s in streams)
    # Those on the worker that was killed, or all after the loss of the scheduler.
    recovered = [s for s in streams if s.num_recoveries]
    assert 1 <= len(recovered) <= NUM_STREAMS
    assert all(s.timelines[0]["num_recoveries"] == s.num_recoveries for s in streams)
    asyncio.run(eventually_clean(pair.grpc_address, NUM_WORKERS, timeout_seconds=30))
