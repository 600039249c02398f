"""A worker whose ranks are processes, with adapters and sleep.

Names get other content while streams run, a rank that is killed changes no answer, and all ranks
give their memory back and take it again.
"""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.adapters.adapter_cells import answer, load, stream

from pagewire.client.sleep_client import sleep, wake_up
from pagewire.client.weights_client import update_weights
from support.adapters.model_adapters import make_adapter
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.processes.processes import children_of, wait_until
from support.products import WHOLE
from support.traffic.streams import eventually_clean

pytestmark = needs_kernels

NUM_TOKENS = 120
CACHE_BYTES = 64 << 20


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((2, 1), marks=pytest.mark.long),
        pytest.param((1, 2), marks=WHOLE),
        pytest.param((2, 2), marks=WHOLE),
    ],
    ids=["divided", "staged", "both"],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """One worker with the adapters a and b, of as many ranks and stages as the parameter says."""
    place = tmp_path_factory.mktemp("ranks")
    model = make_checkpoint(place / "model", architecture="Qwen3ForCausalLM", hidden=256, layers=4)
    for number, name in enumerate("abc"):
        make_adapter(place / name, model, rank=4 + number, seed=number, outer=name == "b")
    cluster = start_cluster(
        model,
        tensor_parallel_size=request.param[0],
        pipeline_parallel_size=request.param[1],
        enable_lora=True,
        enable_sleep_mode=True,
        lora_modules=tuple(f"{name}={place / name}" for name in "ab"),
        lora_roots=(str(place),),
        kv_cache_memory=CACHE_BYTES,
    )
    yield cluster
    cluster.local.stop()


def names_of(cluster: Cluster) -> tuple[str, str, str]:
    return cluster.model, "a", "b"


def ranks_of(cluster: Cluster) -> list[int]:
    (worker,) = cluster.processes["worker"]
    return [worker, *sorted(children_of(worker))]


def resident_bytes(pid: int) -> int:
    """Of its own: the ranks share the memory of their group."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = {line.split()[0]: int(line.split()[1]) for line in lines if line.startswith("Rss")}
    return (sizes["RssAnon:"] + sizes["RssFile:"]) * 1024


def all_answers(cluster: Cluster) -> list[list[int]]:
    return [answer(cluster, name, NUM_TOKENS)[0] for name in names_of(cluster)]


def streams_with(cluster: Cluster, happens: threading.Event) -> list[list[int]]:
    """Return the tokens of a stream of each model; `happens` is set once all of them run."""
    names = names_of(cluster)
    found: list[list[int]] = [[] for _ in names]
    running = threading.Barrier(len(names), action=happens.set)

    def follow(place: int) -> None:
        for tokens in stream(cluster, names[place], NUM_TOKENS):
            if not found[place]:
                running.wait(30)
            found[place] += tokens

    threads = [threading.Thread(target=follow, args=(place,)) for place in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return found


def test_streams_of_adapters_go_on_when_a_rank_is_killed(cluster: Cluster) -> None:
    expected = all_answers(cluster)
    assert len({tuple(one) for one in expected}) == len(expected)
    ranks = ranks_of(cluster)
    happens = threading.Event()

    def kill() -> None:
        assert happens.wait(60)
        os.kill(ranks[-1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert streams_with(cluster, happens) == expected
    killer.join()
    assert f"rank {len(ranks) - 1} of {len(ranks)} is lost" in cluster.log
    asyncio.run(eventually_clean(cluster.grpc_address, 1, timeout_seconds=30))
    assert not set(ranks) & set(ranks_of(cluster))
    assert all_answers(cluster) == expected


def test_a_name_gets_other_content_while_streams_run(cluster: Cluster) -> None:
    expected = all_answers(cluster)
    happens = threading.Event()
    statuses = []

    def reload() -> None:
        assert happens.wait(60)
        folder = cluster.checkpoint.parent
        for name in "cabca":
            statuses.append(load(cluster, "x", folder / name, load_inplace=True).status_code)
            statuses.append(answer(cluster, "x", 2) != [])

    loader = threading.Thread(target=reload)
    loader.start()
    assert streams_with(cluster, happens) == expected
    loader.join()
    assert statuses == [200, True] * 5
    assert answer(cluster, "x", NUM_TOKENS)[0] == expected[1]


@pytest.mark.parametrize("level", [1, 2])
def test_all_ranks_sleep_and_wake(cluster: Cluster, level: int) -> None:
    expected = all_answers(cluster)
    ranks = ranks_of(cluster)
    before = [resident_bytes(pid) for pid in ranks]
    (asleep,) = asyncio.run(sleep(cluster.grpc_address, level=level))
    gone = [size - resident_bytes(pid) for size, pid in zip(before, ranks, strict=True)]
    assert min(gone) > 0.5 * CACHE_BYTES / len(ranks)
    assert asleep.memory == "asleep"
    # What the answer says is the sum.
    assert abs(asleep.sleep_num_bytes - sum(gone)) < 0.2 * sum(gone)
    asyncio.run(wake_up(cluster.grpc_address))
    assert ranks_of(cluster) == ranks
    assert all_answers(cluster) == expected


def test_all_ranks_get_other_weights(cluster: Cluster, tmp_path: Path) -> None:
    expected = all_answers(cluster)
    ranks = ranks_of(cluster)
    new = make_checkpoint(
        tmp_path / "new", architecture="Qwen3ForCausalLM", hidden=256, layers=4, seed=7
    )
    asyncio.run(update_weights(cluster.grpc_address, str(new), version="new"))
    changed = all_answers(cluster)
    assert not any(one == other for one, other in zip(expected, changed, strict=True))
    asyncio.run(update_weights(cluster.grpc_address, str(cluster.checkpoint), version="old"))
    assert all_answers(cluster) == expected
    assert ranks_of(cluster) == ranks


def test_a_rank_that_is_killed_asleep_ends_its_worker(cluster: Cluster) -> None:
    expected = all_answers(cluster)
    ranks = ranks_of(cluster)
    asyncio.run(sleep(cluster.grpc_address))
    os.kill(ranks[-1], signal.SIGKILL)
    wait_until(
        lambda: len(cluster.processes["worker"]) == 1 and not set(ranks) & set(ranks_of(cluster)),
        30,
        "the worker is started again",
    )
    # The one that replaces it is awake.
    assert all_answers(cluster) == expected
