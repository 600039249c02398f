"""A process that hangs is replaced as one that died: streams end with the undisturbed run's tokens
while it is still stopped, and nothing is left behind. What replaces it has stood by before."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pagewire.local.notices import Notice, StandingBy, StoodDown
from pagewire.local.supervision import Restarting
from pagewire_protos.frontend.v1 import inference_pb2
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import is_running, wait_until
from support.traffic.signalled import follow_with_signal, seeded_requests
from support.traffic.streams import Stream, eventually_clean, follow_all

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
    return seeded_requests(model, NUM_STREAMS, NUM_TOKENS)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> list[list[int]]:
    streams = asyncio.run(follow_all(cluster.grpc_address, requests(cluster.model)))
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    return [stream.token_ids for stream in streams]


async def _with_stopped(cluster: Cluster, pid: int) -> list[Stream]:
    """Follow all streams; stop a process once all of them run."""

    async def until_ended() -> None:
        while is_running(pid):
            await asyncio.sleep(0.02)

    return await follow_with_signal(
        cluster.grpc_address,
        requests(cluster.model),
        pid,
        signal.SIGSTOP,
        patience_seconds=PATIENCE_SECONDS,
        after=until_ended,
    )


def told(cluster: Cluster, first: int) -> list[StandingBy | StoodDown | Restarting]:
    """What became of processes, from a notice on."""
    kinds = (StandingBy, StoodDown, Restarting)
    return [notice for notice in cluster.notices[first:] if isinstance(notice, kinds)]


@contextlib.contextmanager
def at_standby(cluster: Cluster, act: Callable[[int], None]) -> Iterator[None]:
    """Act with the process id of a replacement when one is started: before anything else happens,
    however slow the machine is, since the supervisor waits."""

    def react(notice: Notice) -> None:
        if isinstance(notice, StandingBy):
            act(notice.pid)

    cluster.reactions.append(react)
    try:
        yield
    finally:
        cluster.reactions.remove(react)


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
    wait_until(lambda: len(told(cluster, num_before)) == 2, PATIENCE_SECONDS, "a restart is told")
    [standby, again] = told(cluster, num_before)
    assert isinstance(standby, StandingBy)
    assert isinstance(again, Restarting)
    assert standby.name == again.name
    assert again.name.startswith(role)
    assert "hung" in again.reason
    assert again.delay_seconds == 0.0
    wait_until(lambda: cluster.processes[role], PATIENCE_SECONDS, "it runs again")
    assert cluster.processes[role] == [standby.pid]
    asyncio.run(eventually_clean(cluster.grpc_address, 1, timeout_seconds=30))


def test_a_replacement_ends_when_the_process_goes_on(
    cluster: Cluster, undisturbed: list[list[int]]
) -> None:
    [pid] = cluster.processes["scheduler"]
    num_before = len(cluster.notices)
    [request] = requests(cluster.model)[:1]
    with at_standby(cluster, lambda _: os.kill(pid, signal.SIGCONT)):
        os.kill(pid, signal.SIGSTOP)
        [stream] = asyncio.run(follow_all(cluster.grpc_address, [request]))
        wait_until(lambda: len(told(cluster, num_before)) == 2, PATIENCE_SECONDS, "it ends")
    assert stream.token_ids == undisturbed[0]
    [standby, ended] = told(cluster, num_before)
    assert isinstance(standby, StandingBy)
    assert isinstance(ended, StoodDown)
    wait_until(lambda: not is_running(standby.pid), PATIENCE_SECONDS, "the replacement is gone")
    assert cluster.processes["scheduler"] == [pid]


def test_a_replacement_that_dies_is_made_up_for_by_an_ordinary_start(
    cluster: Cluster, undisturbed: list[list[int]]
) -> None:
    """A worker: the scheduler of the test before may not have another one so soon."""
    [pid] = cluster.processes["worker"]
    num_before = len(cluster.notices)
    with at_standby(cluster, lambda replacement: os.kill(replacement, signal.SIGKILL)):
        try:
            streams = asyncio.run(_with_stopped(cluster, pid))
        finally:
            if is_running(pid):
                os.kill(pid, signal.SIGCONT)
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert [stream.token_ids for stream in streams] == undisturbed
    wait_until(lambda: len(told(cluster, num_before)) == 3, PATIENCE_SECONDS, "a restart is told")
    [standby, ended, again] = told(cluster, num_before)
    assert isinstance(standby, StandingBy)
    assert isinstance(ended, StoodDown)
    assert "SIGKILL" in ended.reason
    assert isinstance(again, Restarting)
    assert "hung" in again.reason
    assert not {pid, standby.pid} & set(cluster.processes["worker"])
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
    assert told(cluster, num_before) == []


@pytest.mark.long
def test_the_end_leaves_no_replacement_behind(tiny_checkpoint: Path) -> None:
    cluster = start_cluster(tiny_checkpoint)
    try:
        replacements: list[int] = []
        has_begun = threading.Event()

        def end(pid: int) -> None:
            replacements.append(pid)
            # The first asks, and the stopped process does not hear it; the second kills.
            cluster.local.request_stop()
            cluster.local.request_stop()
            has_begun.set()

        [pid] = cluster.processes["scheduler"]
        pids = [one for role in cluster.processes.values() for one in role]
        with at_standby(cluster, end):
            os.kill(pid, signal.SIGSTOP)
            assert has_begun.wait(PATIENCE_SECONDS)
            cluster.local.stop()
        assert len(replacements) == 1
        assert [one for one in (*pids, *replacements) if is_running(one)] == []
    finally:
        cluster.local.stop()
