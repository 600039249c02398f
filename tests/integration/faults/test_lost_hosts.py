"""A worker whose ranks are on two hosts, as two pods of a LeaderWorkerSet: processes with its
environment. Whatever is lost ends the group on both, it forms again, and streams end with the
undisturbed run's tokens.
"""

import asyncio
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import free_port, is_running, wait_until
from support.processes.rank_pods import RankPod, pod_environ
from support.products import WHOLE
from support.traffic.signalled import follow_with_signal, seeded_requests
from support.traffic.streams import eventually_clean, follow_all

pytestmark = [needs_kernels, pytest.mark.timeout(600)]

NUM_STREAMS = 4
NUM_TOKENS = 120
LOST_SECONDS = 5.0
FORM_SECONDS = 240.0


@dataclass(slots=True)
class Pods:
    """A deployment whose worker is the first pod, and the pod behind it, which may be started
    again."""

    cluster: Cluster
    settings: dict[str, object]
    log: Path
    second: RankPod

    def start_second(self) -> None:
        self.second = RankPod(1, self.settings, self.log)

    def ranks(self) -> list[int]:
        """Return the processes of all ranks, that of the worker first."""
        return [*self.cluster.processes["worker"], *self.second.ranks()]


@pytest.fixture(scope="module")
def pods(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pods]:
    """The parameter is the setting that has two ranks."""
    place = tmp_path_factory.mktemp("pods")
    folder = make_checkpoint(place / "model", architecture="Qwen3ForCausalLM", hidden=256, layers=4)
    (place / "key").write_text("cd" * 32)
    settings = {
        "rank_listen": f"127.0.0.1:{free_port()}",
        "rank_key_file": str(place / "key"),
    }
    second = RankPod(1, {"model": folder, **settings}, place / "log")
    with pytest.MonkeyPatch.context() as patched:
        for name, value in pod_environ(0).items():
            patched.setenv(name, value)
        # Nothing but the environment says how many hosts there are.
        try:
            cluster = start_cluster(
                folder, **{request.param: 2}, **settings, kv_cache_memory=64 << 20
            )
        except BaseException:
            with second:
                raise
        found = Pods(cluster, {"model": folder, **settings}, place / "log", second)
        try:
            yield found
        finally:
            ranks = found.ranks()
            cluster.local.stop()
            wait_until(lambda: not any(map(is_running, ranks)), LOST_SECONDS, "all ranks are gone")
            with found.second:
                pass


@pytest.fixture(scope="module")
def undisturbed(pods: Pods) -> list[list[int]]:
    requests = seeded_requests(pods.cluster.model, NUM_STREAMS, NUM_TOKENS)
    streams = asyncio.run(follow_all(pods.cluster.grpc_address, requests))
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    return [stream.token_ids for stream in streams]


DIVIDED, STAGED = "tensor_parallel_size", "pipeline_parallel_size"


@pytest.mark.parametrize(
    ("pods", "who", "number"),
    [
        pytest.param(DIVIDED, "rank", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(DIVIDED, "rank", signal.SIGSTOP, marks=WHOLE),
        pytest.param(DIVIDED, "pod", signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(DIVIDED, "worker", signal.SIGKILL, marks=WHOLE),
        pytest.param(STAGED, "rank", signal.SIGKILL, marks=WHOLE),
        pytest.param(STAGED, "rank", signal.SIGSTOP, marks=pytest.mark.long),
        pytest.param(STAGED, "pod", signal.SIGKILL, marks=WHOLE),
        pytest.param(STAGED, "worker", signal.SIGSTOP, marks=WHOLE),
    ],
    indirect=["pods"],
)
def test_a_group_of_pods_forms_again_and_streams_go_on(
    pods: Pods, undisturbed: list[list[int]], who: str, number: signal.Signals
) -> None:
    ranks = pods.ranks()
    worker, rank = ranks
    # A worker that stands still is ended by who started it, not by a rank of another host.
    seconds = LOST_SECONDS if (who, number) != ("worker", signal.SIGSTOP) else FORM_SECONDS

    async def until_ended() -> None:
        async with asyncio.timeout(seconds):
            while any(map(is_running, ranks)):
                await asyncio.sleep(0.01)
        if who == "pod":
            pods.second.process.wait()
            pods.start_second()

    pid = {"worker": worker, "rank": rank, "pod": pods.second.pid}[who]
    streams = asyncio.run(
        follow_with_signal(
            pods.cluster.grpc_address,
            seeded_requests(pods.cluster.model, NUM_STREAMS, NUM_TOKENS),
            pid,
            number,
            patience_seconds=FORM_SECONDS,
            after=until_ended,
        )
    )
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert [stream.token_ids for stream in streams] == undisturbed
    assert all(stream.num_recoveries for stream in streams)
    asyncio.run(eventually_clean(pods.cluster.grpc_address, 1, timeout_seconds=30))
    assert len(pods.ranks()) == 2
    if who != "worker":
        assert "rank 1 of 2 is lost" in pods.cluster.log
