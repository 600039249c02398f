"""A worker that is told to end lets its requests go on, takes no new ones, and leaves."""

import asyncio
import os
import signal
from collections.abc import Iterator

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from support.checkpoints import make_checkpoint
from support.clusters import Cluster, start_cluster
from support.streams import Stream, audit, completion

NUM_TOKENS = 300


@pytest.fixture
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


async def streams_over_a_drain(cluster: Cluster) -> list[Stream]:
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(completion(cluster.model, [i + 3] * 20, NUM_TOKENS)) for i in range(8)]
        tasks = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        while not all(stream.token_ids for stream in streams):
            await asyncio.sleep(0.01)
        leaving = cluster.processes["worker"][0]
        os.kill(leaving, signal.SIGTERM)
        await asyncio.gather(*tasks)
        return streams


def test_streams_end_where_they_run(pair: Cluster) -> None:
    before = set(pair.processes["worker"])
    streams = asyncio.run(streams_over_a_drain(pair))
    assert all(len(stream.token_ids) == NUM_TOKENS for stream in streams)
    report = asyncio.run(audit(pair.grpc_address))
    # Nobody was moved: no prompt was computed a second time on the other worker.
    assert not report.findings
    assert len(before & set(pair.processes["worker"])) >= 1
