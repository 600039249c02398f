"""Clients that cancel, disconnect or finish at random: afterwards nothing holds a block, a slot or
a request."""

import asyncio
import random
from collections.abc import Iterator

import grpc.aio
import httpx
import pytest

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.streams import Stream, audit, completion, eventually_clean, leaks

NUM_REQUESTS = 200
ANY_MOMENT = 1000
PATIENCE_SECONDS = 30.0


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Few slots, few blocks, short chunks: requests wait, prefill and decode for long enough to be
    hit."""
    folder = make_checkpoint(tmp_path_factory.mktemp("cancels") / "model", hidden=128, layers=3)
    cluster = start_cluster(
        folder,
        dtype="float32",
        block_size=8,
        max_num_seqs=12,
        max_num_batched_tokens=48,
        max_model_len=400,
        kv_cache_memory=2 * 3 * 2 * 32 * 4 * 8 * 180,
    )
    yield cluster
    cluster.local.stop()


async def cancelled_over_grpc(
    stub: "inference_pb2_grpc.InferenceServiceAsyncStub", model: str, generator: random.Random
) -> str:
    """Run one request and cancel it at a random moment; return in which phase it was hit."""
    prompt = [generator.randrange(3, 512) for _ in range(generator.randrange(1, 250))]
    stream = Stream(completion(model, prompt, 100))
    task = asyncio.create_task(stream.follow(stub))
    # After so many tokens, however long these take; the last stands for any moment.
    wanted = generator.choice([0, 0, 1, 5, 30, ANY_MOMENT])
    patience = generator.uniform(0.0, 1.5) if wanted == ANY_MOMENT else PATIENCE_SECONDS
    deadline = asyncio.get_running_loop().time() + patience
    while not task.done() and len(stream.token_ids) < wanted:
        if wanted == 0 or asyncio.get_running_loop().time() > deadline:
            await asyncio.sleep(generator.uniform(0.0, 0.3))
            break
        await asyncio.sleep(0.005)
    if task.done():
        await task
        return "finished"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return "decode" if stream.token_ids else "before the first token"


async def disconnected_over_http(url: str, model: str, generator: random.Random) -> str:
    """Close the connection of an HTTP request at a random moment, streaming or not."""
    body = {
        "model": model,
        "prompt": [generator.randrange(3, 512) for _ in range(generator.randrange(1, 250))],
        "max_tokens": 100,
        "temperature": 0,
        "stream": generator.random() < 0.5,
    }
    try:
        async with httpx.AsyncClient(timeout=generator.uniform(0.02, 1.0)) as client:
            await client.post(f"{url}/v1/completions", json=body)
    except httpx.TimeoutException:
        return "disconnected"
    return "finished"


async def storm(cluster: Cluster) -> dict[str, int]:
    generator = random.Random(17)
    gate = asyncio.Semaphore(40)
    ended: dict[str, int] = {}

    async def one(index: int, stub: "inference_pb2_grpc.InferenceServiceAsyncStub") -> None:
        async with gate:
            own = random.Random(generator.getrandbits(64))
            if index % 2:
                how = await cancelled_over_grpc(stub, cluster.model, own)
            else:
                how = await disconnected_over_http(cluster.http_url, cluster.model, own)
        ended[how] = ended.get(how, 0) + 1

    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        await asyncio.gather(*(one(index, stub) for index in range(NUM_REQUESTS)))
    return ended


def test_nothing_is_left_of_200_requests(crowded: Cluster) -> None:
    ended = asyncio.run(storm(crowded))
    assert sum(ended.values()) == NUM_REQUESTS
    for how in ("before the first token", "decode", "disconnected"):
        assert ended.get(how, 0) >= 5, ended
    asyncio.run(eventually_clean(crowded.grpc_address, 1))
    # The blocks are there to be found again, held by nobody.
    (pool,) = asyncio.run(audit(crowded.grpc_address)).scheduler.pools
    assert pool.num_cached > 0


def test_the_audit_sees_requests_while_they_run(crowded: Cluster) -> None:
    async def look() -> list[str]:
        async with grpc.aio.insecure_channel(crowded.grpc_address) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            stream = Stream(completion(crowded.model, list(range(3, 40)), 300))
            task = asyncio.create_task(stream.follow(stub))
            while len(stream.token_ids) < 3:
                await asyncio.sleep(0.002)
            found = leaks(await audit(crowded.grpc_address), 1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return found

    found = " ".join(asyncio.run(look()))
    for what in ("num_requests = 1", "num_held", "num_slots = 1", "num_open_streams = 1"):
        assert what in found
    asyncio.run(eventually_clean(crowded.grpc_address, 1))
