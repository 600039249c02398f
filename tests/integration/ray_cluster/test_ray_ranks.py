"""A worker whose ranks are on two nodes of Ray: it computes the tokens of ranks on one host. The
loss of a node ends it, and streams go on with another worker.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.cells.clusters import Cluster, start_cluster
from support.cells.more_workers import MoreWorker
from support.cells.ray_nodes import ON_RAY, ranks_of_tasks
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import is_running, wait_until
from support.traffic.signalled import LEAST_TOKENS, seeded_requests
from support.traffic.streams import Stream, eventually_clean, follow_all

pytestmark = pytest.mark.timeout(600)

NUM_STREAMS = 8
NUM_TOKENS = 150
PATIENCE_SECONDS = 240.0

DIVIDED, STAGED = "tensor_parallel_size", "pipeline_parallel_size"


@pytest.fixture(scope="module", params=[DIVIDED, STAGED])
def cell(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cluster, list[list[int]]]]:
    """A deployment with a worker whose ranks are processes of one host, and its tokens."""
    folder = tmp_path_factory.mktemp("ray") / "model"
    make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)
    cluster = start_cluster(folder, **{request.param: 2}, kv_cache_memory=64 << 20)
    try:
        streams = asyncio.run(follow_all(cluster.grpc_address, requests(cluster)))
        assert [stream.error for stream in streams] == [""] * NUM_STREAMS
        yield cluster, [stream.token_ids for stream in streams]
    finally:
        cluster.local.stop()


def requests(cluster: Cluster) -> list[inference_pb2.CompleteRequest]:
    return seeded_requests(cluster.model, NUM_STREAMS, NUM_TOKENS)


async def follow_while(cluster: Cluster, act: Any) -> list[Stream]:
    """Follow all streams; call `act` in a thread once all of them run."""
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in requests(cluster)]
        followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while min(len(stream.token_ids) for stream in streams) < LEAST_TOKENS:
                await asyncio.sleep(0.001)
            await asyncio.to_thread(act)
            await asyncio.gather(*followers)
    return streams


def test_a_node_is_removed_and_streams_finish_elsewhere(
    cell: tuple[Cluster, list[list[int]]], ray_cluster: Any, tmp_path: Path
) -> None:
    cluster, expected = cell
    with MoreWorker(cluster, tmp_path, **ON_RAY) as worker:
        worker.wait_ready()
        # No rank but 0 is a child of the worker: Ray has started it on the other node.
        (remote,) = ranks_of_tasks()
        node = next(one for one in ray_cluster.worker_nodes)

        def remove() -> None:
            began = time.monotonic()
            ray_cluster.remove_node(node, allow_graceful=False)
            assert worker.finish(20) == 1
            wait_until(lambda: not is_running(remote), 10, "its rank is gone")
            assert time.monotonic() - began < 20

        streams = asyncio.run(follow_while(cluster, remove))
        assert [stream.error for stream in streams] == [""] * NUM_STREAMS
        assert [stream.token_ids for stream in streams] == expected
        assert any(stream.num_recoveries for stream in streams)
        assert "rank 1 of 2 is lost" in worker.log
    asyncio.run(eventually_clean(cluster.grpc_address, 1, timeout_seconds=30))


def test_a_cluster_without_room_is_refused(
    cell: tuple[Cluster, list[list[int]]], ray_cluster: Any, tmp_path: Path
) -> None:
    cluster, _ = cell
    with MoreWorker(cluster, tmp_path, **{**ON_RAY, "cpu_threads": "8"}) as worker:
        assert worker.finish(PATIENCE_SECONDS) == 1
        assert "--rank-hosts: Ray has no 2 nodes with 4 free CPUs each" in worker.log
