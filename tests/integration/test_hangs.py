"""A process that hangs is replaced as one that died: streams end with the undisturbed run's tokens
while it is still stopped, and nothing is left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import grpc.aio
import pytest

from pagewire.local.supervision import Restarting
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.checkpoints import make_checkpoint
from support.clusters import Cluster, start_cluster
from support.processes import is_running, wait_until
from support.streams import Stream, completion, eventually_clean, follow_all

NUM_STREAMS = 6
STARVED_SECONDS = 8.0
NUM_TOKENS = 160
PATIENCE_SECONDS = 40.0
"""Far more than a replacement takes; the stopped process is never continued."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("hangs") / "model"
    make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)
    cluster = start_cluster(folder, kvstore_memory="16MiB", kv_cache_memory=64 << 20)
    yield cluster
    cluster.local.stop()


def requests(model: str) -> list[inference_pb2.CompleteRequest]:
    return [
        completion(model, [5 + index, 7, 11 + index] * 9, NUM_TOKENS, temperature=1.0, seed=index)
        for index in range(NUM_STREAMS)
    ]


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> list[list[int]]:
    streams = asyncio.run(follow_all(cluster.grpc_address, requests(cluster.model)))
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    return [stream.token_ids for stream in streams]


async def _with_stopped(cluster: Cluster, pid: int) -> list[Stream]:
    """Follow all streams; stop a process once all of them run."""
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in requests(cluster.model)]
        followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        while min(len(stream.token_ids) for stream in streams) < 8:
            await asyncio.sleep(0.001)
        assert max(len(stream.token_ids) for stream in streams) < NUM_TOKENS
        os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*followers)
            while is_running(pid):
                await asyncio.sleep(0.02)
    return streams


def restarts(cluster: Cluster, first: int) -> list[Restarting]:
    """What was started again, from a notice on."""
    return [notice for notice in cluster.notices[first:] if isinstance(notice, Restarting)]


@pytest.mark.parametrize(
    "role",
    [
        "scheduler",
        pytest.param("worker", marks=pytest.mark.long),
        pytest.param("kvstore", marks=pytest.mark.long),
    ],
)
def test_streams_go_on_when_a_process_hangs(
    cluster: Cluster, undisturbed: list[list[int]], role: str
) -> None:
    [pid] = cluster.processes[role]
    num_before = len(cluster.notices)
    try:
        streams = asyncio.run(_with_stopped(cluster, pid))
    finally:
        if is_running(pid):
            os.kill(pid, signal.SIGCONT)
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert [stream.token_ids for stream in streams] == undisturbed
    # It is told a moment after the process has ended.
    wait_until(lambda: restarts(cluster, num_before), PATIENCE_SECONDS, "a restart is told")
    [again] = restarts(cluster, num_before)
    assert again.name.startswith(role)
    assert "hung" in again.reason
    asyncio.run(eventually_clean(cluster.grpc_address, 1, timeout_seconds=30))


@pytest.mark.long
def test_a_starved_machine_kills_nobody(cluster: Cluster, undisturbed: list[list[int]]) -> None:
    """Far more processes that compute than cores, for several times the patience."""
    num_before = len(cluster.notices)
    loop = [sys.executable, "-c", "while True: pass"]
    hogs = [subprocess.Popen(loop) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        end = time.monotonic() + STARVED_SECONDS
        [request] = requests(cluster.model)[:1]
        [stream] = asyncio.run(follow_all(cluster.grpc_address, [request]))
        assert stream.token_ids == undisturbed[0]
        time.sleep(max(0.0, end - time.monotonic()))
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert restarts(cluster, num_before) == []
