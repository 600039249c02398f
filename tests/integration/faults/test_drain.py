"""A worker that is told to end lets its requests go on elsewhere, takes no new ones, and leaves."""

import asyncio
import os
import signal
from collections.abc import Iterator

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import wait_until
from support.traffic.streams import Stream, audit, completion, follow_all

NUM_STREAMS = 8
NUM_PROMPT = 20
NUM_TOKENS = 300


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = make_checkpoint(tmp_path_factory.mktemp("drain") / "model", hidden=128, layers=3)
    # Children take their flags from the environment, too.
    os.environ["PAGEWIRE_DRAIN_SECONDS"] = "60"
    try:
        cluster = start_cluster(folder, dtype="float32", num_workers=2, max_model_len=400)
    finally:
        del os.environ["PAGEWIRE_DRAIN_SECONDS"]
    yield cluster
    cluster.local.stop()


async def streams_over_a_drain(cluster: Cluster) -> tuple[list[Stream], dict[str, int]]:
    """Return the streams, and how many each worker ran when one of them was told to end."""
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [
            Stream(completion(cluster.model, [i + 3] * NUM_PROMPT, NUM_TOKENS))
            for i in range(NUM_STREAMS)
        ]
        tasks = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        while not all(stream.token_ids for stream in streams):
            await asyncio.sleep(0.01)
        pools = (await audit(cluster.grpc_address)).scheduler.pools
        os.kill(cluster.processes["worker"][0], signal.SIGTERM)
        await asyncio.gather(*tasks)
        return streams, {pool.worker: pool.num_slots for pool in pools}


def test_streams_go_on_elsewhere(pair: Cluster) -> None:
    leaving = pair.processes["worker"][0]
    streams, num_running = asyncio.run(streams_over_a_drain(pair))
    assert sum(num_running.values()) == NUM_STREAMS
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert all(len(stream.token_ids) == NUM_TOKENS for stream in streams)
    report = asyncio.run(audit(pair.grpc_address))
    assert not report.findings
    # The one that stayed computed its own, and of those that came the rest; of none more than all.
    stayed = [pool for pool in report.scheduler.pools if num_running.get(pool.worker)]
    assert len(stayed) >= 1
    each = NUM_PROMPT + NUM_TOKENS - 1
    for pool in stayed:
        own = num_running[pool.worker] * each
        assert own <= pool.num_computed_tokens <= NUM_STREAMS * each
    assert any(one["num_migrations"] for stream in streams for one in stream.timelines)
    wait_until(lambda: leaving not in pair.processes["worker"], 30.0, "the worker leaves")


def test_what_comes_after_runs_elsewhere(pair: Cluster) -> None:
    (stream,) = asyncio.run(
        follow_all(pair.grpc_address, [completion(pair.model, [7] * NUM_PROMPT, 5)])
    )
    assert (stream.error, len(stream.token_ids)) == ("", 5)
