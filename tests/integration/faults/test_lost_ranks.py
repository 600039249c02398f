"""A rank that is killed or stands still: its worker ends at once and is started again, streams end
with the undisturbed run's tokens, and neither processes nor shared memory are left behind.

Ranks have parts of the layers, stages of them, or whole experts.
"""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire_protos.frontend.v1 import inference_pb2
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint, write_tokenizer
from support.checkpoints.fallback_checkpoints import VOCAB
from support.kernels.fused_kernels import needs_kernels
from support.oracles.family_checkpoints import MAX_POSITIONS, make_family_checkpoint
from support.processes.processes import children_of, is_running, wait_until
from support.products import WHOLE
from support.traffic.signalled import follow_with_signal, seeded_requests
from support.traffic.streams import Stream, eventually_clean, follow_all

pytestmark = needs_kernels

NUM_STREAMS = 6
NUM_TOKENS = 200
END_SECONDS = 6.0
"""For the end of a group; a step alone would wait for its ranks five times as long."""

SHARED = Path("/dev/shm")


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A deployment with one worker; the parameter is its ranks per stage, its stages, and whether
    ranks have whole experts."""
    size, num_stages, *has_experts = request.param
    folder = tmp_path_factory.mktemp("ranks") / "model"
    if has_experts:
        make_family_checkpoint(folder.parent, "deepseek-v3").rename(folder)
        write_tokenizer(folder, VOCAB, MAX_POSITIONS)
    else:
        make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)
    cluster = start_cluster(
        folder,
        tensor_parallel_size=size,
        pipeline_parallel_size=num_stages,
        enable_expert_parallel=bool(has_experts),
        max_model_len=MAX_POSITIONS,
        kv_cache_memory=64 << 20,
    )
    assert len(ranks_of(cluster)) == size * num_stages
    yield cluster
    ranks = ranks_of(cluster)
    cluster.local.stop()
    assert not any(map(is_running, ranks))


def requests(model: str) -> list[inference_pb2.CompleteRequest]:
    return seeded_requests(model, NUM_STREAMS, NUM_TOKENS)


def ranks_of(cluster: Cluster) -> list[int]:
    """Return the processes of the worker's ranks, rank 0 first."""
    (worker,) = cluster.processes["worker"]
    return [worker, *sorted(children_of(worker))]


def states(pids: list[int]) -> list[str]:
    """Return the states of those of the processes that are there, such as "Z"."""
    found = []
    for pid in pids:
        path = Path(f"/proc/{pid}/stat")
        if path.exists():
            found.append(path.read_text().rpartition(")")[2].split()[0])
    return found


def shared_files() -> set[str]:
    """Return the names of shared memory, but for the arenas of stores, which other tests have."""
    return {one.name for one in SHARED.iterdir() if not one.name.startswith("pagewire-kv-")}


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster) -> list[list[int]]:
    streams = asyncio.run(follow_all(cluster.grpc_address, requests(cluster.model)))
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    return [stream.token_ids for stream in streams]


async def follow_with(cluster: Cluster, pid: int, number: signal.Signals) -> list[Stream]:
    """Follow all streams; send a signal to a process once all of them run."""
    ranks = ranks_of(cluster)

    async def until_ended() -> None:
        began = time.monotonic()
        while any(map(is_running, ranks)):
            await asyncio.sleep(0.01)
        assert time.monotonic() - began < END_SECONDS

    return await follow_with_signal(
        cluster.grpc_address,
        requests(cluster.model),
        pid,
        number,
        patience_seconds=60,
        after=until_ended,
    )


DIVIDED, STAGED, BOTH, EXPERTS = (2, 1), (1, 2), (2, 2), (2, 1, "experts")


@pytest.mark.parametrize(
    ("cluster", "rank", "number"),
    [
        pytest.param(DIVIDED, 1, signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(DIVIDED, 0, signal.SIGSTOP, marks=WHOLE),
        pytest.param(DIVIDED, 0, signal.SIGKILL, marks=WHOLE),
        pytest.param(DIVIDED, 1, signal.SIGSTOP, marks=WHOLE),
        pytest.param(STAGED, 1, signal.SIGSTOP, marks=pytest.mark.long),
        pytest.param(STAGED, 1, signal.SIGKILL, marks=WHOLE),
        pytest.param(STAGED, 0, signal.SIGSTOP, marks=WHOLE),
        pytest.param(STAGED, 0, signal.SIGKILL, marks=WHOLE),
        pytest.param(EXPERTS, 1, signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(EXPERTS, 0, signal.SIGKILL, marks=pytest.mark.long),
        pytest.param(EXPERTS, 1, signal.SIGSTOP, marks=WHOLE),
        *(pytest.param(BOTH, rank, signal.SIGKILL, marks=WHOLE) for rank in range(4)),
        pytest.param(BOTH, 3, signal.SIGSTOP, marks=WHOLE),
    ],
    indirect=["cluster"],
)
def test_streams_go_on_when_a_rank_is_lost(
    cluster: Cluster, undisturbed: list[list[int]], rank: int, number: signal.Signals
) -> None:
    ranks = ranks_of(cluster)
    before = shared_files()
    streams = asyncio.run(follow_with(cluster, ranks[rank], number))
    assert [stream.error for stream in streams] == [""] * NUM_STREAMS
    assert [stream.token_ids for stream in streams] == undisturbed
    assert all(stream.num_recoveries for stream in streams)
    asyncio.run(eventually_clean(cluster.grpc_address, 1, timeout_seconds=30))
    wait_until(lambda: states(ranks) == [], 10, "all ranks are gone")
    # The worker that replaces it may have files of its own by now.
    wait_until(lambda: len(shared_files()) <= len(before), 10, "no file is left behind")
    if rank > 0:
        assert f"rank {rank} of {len(ranks)} is lost" in cluster.log
