"""Real processes that sleep and wake: memory, tokens, streams that wait, prefixes, kills."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import grpc.aio
import httpx
import pytest

from pagewire.cli import admin
from pagewire.cli.live import top
from pagewire.client.sleep_client import is_sleeping, sleep, wake_up
from pagewire.client.topology_client import WorkerFacts, topology
from pagewire_protos.frontend.v1 import inference_pb2_grpc
from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.sleep.state import MemoryTag
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import wait_until
from support.sleep.random_sleeps import run_rounds, start
from support.traffic.streams import Stream, audit, completion, follow_all

PROMPT = list(range(20, 70))
CACHE_BYTES = 128 << 20


@pytest.fixture(scope="module")
def sleeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One worker that sleeps; its weights are worth measuring."""
    folder = make_checkpoint(
        tmp_path_factory.mktemp("sleep") / "model", hidden=256, layers=2, with_tokenizer=True
    )
    cluster = start_cluster(
        folder, enable_sleep_mode=True, kv_cache_memory=CACHE_BYTES, max_model_len=512
    )
    yield cluster
    cluster.local.stop()


@pytest.fixture(autouse=True)
def awake_afterwards(sleeper: Cluster) -> Iterator[None]:
    """A test that fails leaves no sleeping worker to the next."""
    yield
    asyncio.run(wake_up(sleeper.grpc_address))


def tokens_of(cluster: Cluster, num_tokens: int = 12) -> Stream:
    request = completion(cluster.model, PROMPT, num_tokens)
    following = asyncio.wait_for(follow_all(cluster.grpc_address, [request]), 30)
    (stream,) = asyncio.run(following)
    assert stream.error == ""
    return stream


def resident_bytes(cluster: Cluster) -> int:
    (pid,) = cluster.processes["worker"]
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS:")).split()[1]) * 1024


def is_at_rest(cluster: Cluster) -> bool:
    """Whether its memory does not grow: pages of the cache are made in the background."""
    before = resident_bytes(cluster)
    time.sleep(0.3)
    return resident_bytes(cluster) - before < 1 << 20


def the_worker(cluster: Cluster) -> WorkerFacts:
    ((worker,),) = [cell.workers for cell in asyncio.run(topology(cluster.grpc_address))]
    return worker


@pytest.mark.parametrize("level", [1, 2])
def test_memory_goes_and_the_tokens_stay(sleeper: Cluster, level: int) -> None:
    expected = tokens_of(sleeper).token_ids
    wait_until(lambda: is_at_rest(sleeper), 20, "the cache has its pages")
    before = resident_bytes(sleeper)
    (worker,) = asyncio.run(sleep(sleeper.grpc_address, level=level))
    fallen = before - resident_bytes(sleeper)
    assert (worker.memory, worker.sleep_level) == ("asleep", level)
    assert worker.sleep_num_bytes > CACHE_BYTES
    assert fallen >= 0.95 * worker.sleep_num_bytes
    assert asyncio.run(is_sleeping(sleeper.grpc_address))
    (worker,) = asyncio.run(wake_up(sleeper.grpc_address, tags=[MemoryTag.WEIGHTS]))
    assert worker.memory == "asleep"
    (worker,) = asyncio.run(wake_up(sleeper.grpc_address))
    assert worker.memory == "awake"
    assert tokens_of(sleeper).token_ids == expected


def test_http_has_the_answers_of_vllm(sleeper: Cluster) -> None:
    def post(path: str) -> httpx.Response:
        return httpx.post(f"{sleeper.http_url}{path}", timeout=60)

    url = f"{sleeper.http_url}/is_sleeping"
    assert httpx.get(url, timeout=10).json() == {"is_sleeping": False}
    answer = post("/sleep?level=1&mode=wait")
    assert (answer.status_code, answer.content) == (200, b"")
    assert httpx.get(url, timeout=10).json() == {"is_sleeping": True}
    assert httpx.get(f"{sleeper.http_url}/health", timeout=10).status_code == 200
    answer = post("/wake_up?tags=weights&tags=kv_cache")
    assert (answer.status_code, answer.content) == (200, b"")
    assert httpx.get(url, timeout=10).json() == {"is_sleeping": False}
    for path, field in (
        ("/sleep?level=3", "level"),
        ("/sleep?mode=abort", "mode"),
        ("/wake_up?tags=graphs", "tags"),
    ):
        answer = post(path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert post("/sleep?model=other").status_code == 404


def test_commands(sleeper: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    server = ["--server", sleeper.grpc_address]
    name = the_worker(sleeper).worker[:8]
    assert admin.run("admin", ["sleep", *server, "--level", "2", "--worker", name]) == 0
    assert f"worker {name} sleeps at level 2: " in capsys.readouterr().out
    assert admin.run("admin", ["topology", *server]) == 0
    assert "asleep" in capsys.readouterr().out
    assert top.run("top", ["--json", *server]) == 0
    (cell,) = json.loads(capsys.readouterr().out)
    (shown,) = cell["workers"]
    assert shown["facts"]["memory"] == "asleep"
    assert shown["pool"]["num_cached"] == 0
    assert cell["problems"] == []
    assert admin.run("admin", ["wake", *server, "--tags", "weights"]) == 0
    assert f"worker {name} is asleep" in capsys.readouterr().out
    assert admin.run("admin", ["wake", *server]) == 0
    assert f"worker {name} is awake" in capsys.readouterr().out


async def _stream_over_sleep(cluster: Cluster) -> tuple[Stream, Stream]:
    """A stream that runs when its worker is sent to sleep, and one that comes while it sleeps."""
    async with grpc.aio.insecure_channel(cluster.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(completion(cluster.model, PROMPT, 200)) for _ in range(2)]
        running = asyncio.create_task(streams[0].follow(stub))
        while len(streams[0].token_ids) < 5:
            await asyncio.sleep(0.005)
        await sleep(cluster.grpc_address)
        waiting = asyncio.create_task(streams[1].follow(stub))
        num_tokens = len(streams[0].token_ids)
        await asyncio.sleep(0.3)
        assert num_tokens < 200
        assert len(streams[0].token_ids) <= num_tokens + 2
        assert not streams[1].token_ids
        await wake_up(cluster.grpc_address)
        await asyncio.gather(running, waiting)
    return streams[0], streams[1]


def test_streams_wait_and_have_the_same_tokens(sleeper: Cluster) -> None:
    expected = tokens_of(sleeper, 200).token_ids
    paused, late = asyncio.run(_stream_over_sleep(sleeper))
    assert (paused.error, late.error) == ("", "")
    assert paused.token_ids == late.token_ids == expected
    assert paused.num_recoveries == 0
    assert paused.timelines[0]["num_migrations"] == 1


def test_the_prefix_cache_is_gone(sleeper: Cluster) -> None:
    tokens_of(sleeper)
    assert num_cached(sleeper) > 0
    asyncio.run(sleep(sleeper.grpc_address))
    asyncio.run(wake_up(sleeper.grpc_address))
    assert num_cached(sleeper) == 0
    tokens_of(sleeper)
    assert not asyncio.run(audit(sleeper.grpc_address)).findings


def num_cached(cluster: Cluster) -> int:
    (pool,) = asyncio.run(audit(cluster.grpc_address)).scheduler.pools
    return pool.num_cached


def _is_there(cluster: Cluster, name: str, *, is_new: bool = False) -> bool:
    try:
        cells = asyncio.run(topology(cluster.grpc_address))
    except UnavailableError:
        return False
    workers = [worker.worker for cell in cells for worker in cell.workers]
    return len(workers) == 1 and (workers != [name]) is is_new


def test_without_sleep_mode_the_order_is_refused(cluster: Cluster) -> None:
    with pytest.raises(InvalidRequestError, match="start it with --enable-sleep-mode"):
        asyncio.run(sleep(cluster.grpc_address))


def _kill_around_a_sleeper(sleeper: Cluster) -> None:
    """A sleeping worker survives the scheduler, and one that is started anew is awake."""
    expected = tokens_of(sleeper).token_ids
    asyncio.run(sleep(sleeper.grpc_address, level=2))
    worker = the_worker(sleeper)
    os.kill(sleeper.processes["scheduler"][0], signal.SIGKILL)
    wait_until(lambda: _is_there(sleeper, worker.worker), 30, "the worker attaches again")
    assert the_worker(sleeper).memory == "asleep"
    os.kill(sleeper.processes["worker"][0], signal.SIGKILL)
    wait_until(lambda: _is_there(sleeper, worker.worker, is_new=True), 30, "another one attaches")
    assert the_worker(sleeper).memory == "awake"
    assert tokens_of(sleeper).token_ids == expected


async def _are_asleep(address: str) -> None:
    while not await is_sleeping(address):
        await asyncio.sleep(0.1)


@pytest.mark.long
def test_random_sleeps_wakes_and_kills_then_sleep_of_the_idle(
    sleeper: Cluster, tmp_path: Path
) -> None:
    _kill_around_a_sleeper(sleeper)
    cell = start(tmp_path, sleep_after_seconds=2.0)
    try:
        rounds = asyncio.run(run_rounds(cell, 3, 7))
        expected = tokens_of(cell).token_ids
        asyncio.run(asyncio.wait_for(_are_asleep(cell.grpc_address), 20))
        assert tokens_of(cell).token_ids == expected
    finally:
        cell.local.stop()
    assert rounds.counts["sleep"] > 0
