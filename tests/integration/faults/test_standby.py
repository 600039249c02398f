"""kill -9 and STOP of the active scheduler of a pair: the other takes over, every stream ends with
the undisturbed run's tokens, and the first one stands by when it is back."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from pagewire.cli.live.overview import overview
from pagewire.local.child_process import LineReceived
from pagewire_protos.frontend.v1 import inference_pb2
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import wait_until
from support.traffic.signalled import follow_with_signal, seeded_requests
from support.traffic.streams import Stream, eventually_clean, follow_all

NUM_STREAMS = 8
NUM_TOKENS = 160
NUM_WORKERS = 2
PATIENCE_SECONDS = 40.0
TAKES_OVER = "takes over as generation"
STANDS_BY = "this one stands by"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two schedulers, frontends and workers. Without a watchdog, which would end a stopped one."""
    folder = tmp_path_factory.mktemp("standby") / "model"
    make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)
    cluster = start_cluster(
        folder,
        num_workers=NUM_WORKERS,
        frontends=2,
        standby_scheduler=True,
        watchdog=False,
        log_level="info",
        kv_cache_memory=64 << 20,
    )
    yield cluster
    cluster.local.stop()


def requests(model: str) -> list[inference_pb2.CompleteRequest]:
    return seeded_requests(model, NUM_STREAMS, NUM_TOKENS)


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> list[list[int]]:
    streams = asyncio.run(follow_all(cluster.grpc_address, requests(cluster.model)))
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    return [stream.token_ids for stream in streams]


def saying(cluster: Cluster, text: str) -> list[str]:
    """The schedulers that wrote a line with `text`, in order."""
    lines = [notice for notice in cluster.notices if isinstance(notice, LineReceived)]
    return [line.name for line in lines if text in line.text]


def active(cluster: Cluster) -> str:
    return saying(cluster, TAKES_OVER)[-1]


async def with_signal(cluster: Cluster, pid: int, number: signal.Signals) -> list[Stream]:
    """Follow all streams, and send a signal once all of them run."""
    return await follow_with_signal(
        cluster.grpc_address,
        requests(cluster.model),
        pid,
        number,
        patience_seconds=PATIENCE_SECONDS,
    )


def check_unharmed(cluster: Cluster, streams: list[Stream], expected: list[list[int]]) -> None:
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert [stream.token_ids for stream in streams] == expected
    assert all(stream.num_resumes >= 1 for stream in streams)
    asyncio.run(eventually_clean(cluster.grpc_address, NUM_WORKERS, timeout_seconds=30))


def eventually(reached: Callable[[], bool]) -> None:
    wait_until(reached, PATIENCE_SECONDS, "the first scheduler is back")


def test_the_standby_takes_over_from_a_killed_scheduler(
    cluster: Cluster, undisturbed: list[list[int]]
) -> None:
    for _ in range(2):  # there and back: the restarted process is the new standby
        first = active(cluster)
        num_changes = len(saying(cluster, TAKES_OVER))
        pid = cluster.local.pids("scheduler")[first]
        streams = asyncio.run(with_signal(cluster, pid, signal.SIGKILL))
        check_unharmed(cluster, streams, undisturbed)
        assert active(cluster) != first
        assert len(saying(cluster, TAKES_OVER)) == num_changes + 1, "nothing takes over twice"
        eventually(lambda old=pid, name=first: _is_back(cluster, name, old))


def _is_back(cluster: Cluster, name: str, old_pid: int) -> bool:
    return cluster.local.pids("scheduler").get(name, old_pid) != old_pid


def states(cluster: Cluster) -> list[str]:
    (cell,) = asyncio.run(overview(cluster.grpc_address))
    assert len({one.address for one in cell.schedulers}) == 2
    return [one.state for one in cell.schedulers]


def test_a_stopped_scheduler_stands_by_when_it_goes_on(
    cluster: Cluster, undisturbed: list[list[int]]
) -> None:
    first = active(cluster)
    pid = cluster.local.pids("scheduler")[first]
    # A scheduler that was replaced before is a standby only once it has come back.
    both = ["active", "standby"]
    wait_until(lambda: sorted(states(cluster)) == both, PATIENCE_SECONDS, "there is a standby")
    before = states(cluster)
    try:
        streams = asyncio.run(with_signal(cluster, pid, signal.SIGSTOP))
        assert states(cluster) == ["lost" if one == "active" else "active" for one in before]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert active(cluster) != first
    eventually(lambda: saying(cluster, STANDS_BY) == [first])
    check_unharmed(cluster, streams, undisturbed)
    assert cluster.local.pids("scheduler")[first] == pid, "it is still the same process"
    second = cluster.local.pids("scheduler")[active(cluster)]
    streams = asyncio.run(with_signal(cluster, second, signal.SIGKILL))
    assert active(cluster) == first
    check_unharmed(cluster, streams, undisturbed)
