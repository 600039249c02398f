"""Profiles, stacks and calls of extensions in a deployment of real processes, with ranks."""

import asyncio
import gzip
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pagewire.cli import admin
from pagewire.client.inspection_client import collective_rpc, read_profile, stacks, start_profile
from pagewire.client.sleep_client import sleep, wake_up
from pagewire.client.topology_client import topology
from pagewire_shared.errors import InvalidRequestError, OverloadedError, UnavailableError
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.kernels.fused_kernels import needs_kernels
from support.traffic.signalled import seeded_requests
from support.traffic.streams import follow_all

pytestmark = needs_kernels


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspected")


@pytest.fixture(scope="module")
def ranked(folder: Path) -> Iterator[Cluster]:
    """A worker of two ranks, a KV store, and an extension out of the standard library. No watchdog:
    a test lets the store stand still."""
    checkpoint = make_checkpoint(folder / "model", architecture="Qwen3ForCausalLM")
    cluster = start_cluster(
        checkpoint,
        tensor_parallel_size=2,
        kv_cache_memory=16 << 20,
        num_kvstores=1,
        kvstore_memory="16MiB",
        watchdog=False,
        profiler_dir=str(folder / "traces"),
        worker_extension_cls="string.Formatter",
    )
    yield cluster
    cluster.local.stop()


@pytest.fixture(scope="module")
def plain(folder: Path, ranked: Cluster) -> Iterator[Cluster]:
    """A worker without an extension, which may sleep."""
    cluster = start_cluster(ranked.checkpoint, enable_sleep_mode=True)
    yield cluster
    cluster.local.stop()


def outputs(cluster: Cluster) -> list[Any]:
    requests = seeded_requests(cluster.model, 4, 40)
    streams = asyncio.run(follow_all(cluster.grpc_address, requests))
    assert not any(stream.error for stream in streams)
    return [stream.token_ids for stream in streams]


def worker_of(cluster: Cluster) -> str:
    (cell,) = asyncio.run(topology(cluster.grpc_address))
    (worker,) = cell.workers
    return worker.worker


def events_of(trace: bytes) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = json.loads(gzip.decompress(trace))["traceEvents"]
    return events


def test_streams_keep_their_tokens_while_all_ranks_are_profiled(
    ranked: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    expected = outputs(ranked)
    address, worker = ranked.grpc_address, worker_of(ranked)
    assert asyncio.run(start_profile(address, worker=worker[:6], num_steps=10)) == [worker]
    with pytest.raises(OverloadedError, match=f"worker {worker[:8]}: it is being profiled"):
        asyncio.run(start_profile(address))
    assert outputs(ranked) == expected
    events = events_of(asyncio.run(read_profile(address, worker)))
    names = {one["args"]["name"]: one["pid"] for one in events if one["name"] == "process_name"}
    assert set(names) == {f"worker {worker[:8]} rank 0", "rank 1"}
    assert len(set(names.values())) == 2
    for pid in names.values():
        own = [one["name"] for one in events if one["pid"] == pid]
        # The others go on until rank 0 says that it has its steps.
        assert own.count("forward") == own.count("layer 1") >= 10
        assert pid != names[f"worker {worker[:8]} rank 0"] or own.count("step") == 10
    # The command, with a profile that ends by time.
    out = tmp_path / "trace.json.gz"
    flags = [worker[:8], "--out", str(out), "--timeout-seconds", "0.2", "--server", address]
    assert admin.run("admin", ["profile", *flags]) == 0
    assert f"wrote {out}" in capsys.readouterr().out
    assert events_of(out.read_bytes())
    assert outputs(ranked) == expected


def test_profiles_over_http_become_files(ranked: Cluster, plain: Cluster, folder: Path):
    url = ranked.http_url
    assert httpx.post(f"{url}/start_profile", timeout=30).status_code == 200
    outputs(ranked)
    answer = httpx.post(f"{url}/stop_profile", timeout=30).json()
    (trace,) = answer["traces"]
    assert trace["worker"] == worker_of(ranked)
    path = Path(trace["path"])
    assert path.parent == folder / "traces"
    assert any(event["name"] == "forward" for event in events_of(path.read_bytes()))
    again = httpx.post(f"{url}/stop_profile", timeout=30)
    assert again.status_code == 400
    assert "there is no profile" in again.text
    refused = httpx.post(f"{plain.http_url}/start_profile", timeout=30)
    assert refused.status_code == 400
    assert "--profiler-dir" in refused.text


def test_stacks_of_all_roles_and_ranks(ranked: Cluster, capsys: pytest.CaptureFixture[str]):
    address, worker = ranked.grpc_address, worker_of(ranked)
    found = asyncio.run(stacks(address))
    assert [one.error for one in found] == [""] * 5
    pids = {role: sorted(one.pid for one in found if one.role == role) for role in ranked.processes}
    for role in ("frontend", "scheduler", "kvstore"):
        assert pids[role] == ranked.processes[role]
    assert set(ranked.processes["worker"]) < set(pids["worker"])
    (rank,) = [one for one in found if one.name == f"{worker} rank 1"]
    innermost = {thread.frames[0].function for thread in rank.threads if thread.frames}
    assert "receive" in innermost
    threads = {thread.name for one in found if one.name == worker for thread in one.threads}
    assert {"model", "MainThread"} <= threads
    for one in found[:-1]:
        assert one.role == "worker" or one.tasks
    chosen = asyncio.run(stacks(address, "kvstore"))
    assert [one.role for one in chosen] == ["kvstore"]
    assert admin.run("admin", ["stacks", worker[:8], "--server", address, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in printed] == [worker, f"{worker} rank 1"]
    assert admin.run("admin", ["stacks", "scheduler", "--server", address]) == 0
    assert "thread MainThread" in capsys.readouterr().out
    with pytest.raises(InvalidRequestError, match="no process is called 'nothing'"):
        admin.run("admin", ["stacks", "nothing", "--server", address])


def test_a_process_that_stands_still_has_an_entry(
    ranked: Cluster, capsys: pytest.CaptureFixture[str]
):
    (store,) = ranked.processes["kvstore"]
    os.kill(store, signal.SIGSTOP)
    try:
        flags = ["stacks", "--timeout-seconds", "0.5", "--server", ranked.grpc_address]
        assert admin.run("admin", flags) == 1
        assert "kvstore" in capsys.readouterr().out
        (found,) = [one for one in asyncio.run(stacks(ranked.grpc_address)) if one.error]
        assert found.role == "kvstore"
    finally:
        os.kill(store, signal.SIGCONT)


def test_an_extension_is_called_in_every_rank(ranked: Cluster, plain: Cluster):
    address, worker = ranked.grpc_address, worker_of(ranked)
    asked = collective_rpc(address, "format", args=["{}-{word}", 7], kwargs={"word": "a"})
    assert asyncio.run(asked) == {worker: ["7-a", "7-a"]}
    with pytest.raises(InvalidRequestError, match=r"string.Formatter has no public method 'run'"):
        asyncio.run(collective_rpc(address, "run"))
    with pytest.raises(InvalidRequestError, match="no code is sent to workers"):
        asyncio.run(collective_rpc(address, len))  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="started without --worker-extension-cls"):
        asyncio.run(collective_rpc(plain.grpc_address, "format"))


def test_a_worker_that_sleeps_is_refused_by_name(plain: Cluster):
    address = plain.grpc_address
    asyncio.run(start_profile(address))
    asyncio.run(sleep(address))
    with pytest.raises(UnavailableError, match="it sleeps"):
        asyncio.run(start_profile(address))
    with pytest.raises(UnavailableError, match="it sleeps"):
        asyncio.run(read_profile(address, worker_of(plain)))
    assert not any(one.error for one in asyncio.run(stacks(address, "worker")))
    asyncio.run(wake_up(address))
    assert asyncio.run(start_profile(address, num_steps=2)) == [worker_of(plain)]
    outputs(plain)
    assert events_of(asyncio.run(read_profile(address, worker_of(plain))))


def test_sigusr2_shows_the_stacks_of_a_process_that_holds_its_loop(plain: Cluster):
    (pid,) = plain.processes["scheduler"]
    os.kill(pid, signal.SIGUSR2)
    ends_at = time.monotonic() + 10
    while "most recent call first" not in plain.log and time.monotonic() < ends_at:
        time.sleep(0.05)
    assert "most recent call first" in plain.log
    assert "in run_role" in plain.log
    outputs(plain)
