"""LocalCluster: real processes that die, are restarted, and leave nothing behind."""

import os
import signal
from pathlib import Path

import httpx
import pytest

from pagewire.config import config_from_keywords
from pagewire.local.cluster import LocalCluster
from pagewire.local.supervision import Restarting
from pagewire_shared.errors import StartupError
from support.cells.clusters import TINY, Cluster, MakeCluster
from support.processes.processes import free_port, free_ports, is_running, wait_until


def answer(cluster: Cluster) -> str:
    body = {"model": cluster.model, "prompt": "a b c", "max_tokens": 8, "temperature": 0}
    response = httpx.post(f"{cluster.http_url}/v1/completions", json=body, timeout=30)
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["text"]
    return text


def test_every_role_runs_and_answers(cluster: Cluster) -> None:
    assert {role: len(pids) for role, pids in cluster.processes.items()} == {
        "frontend": 1,
        "scheduler": 1,
        "worker": 1,
        "kvstore": 1,
    }
    assert answer(cluster) == answer(cluster)


@pytest.mark.parametrize("role", ["worker", "scheduler", "frontend", "kvstore"])
def test_a_killed_role_comes_back_and_answers_the_same(cluster: Cluster, role: str) -> None:
    before = answer(cluster)
    (victim,) = cluster.processes[role]
    num_notices = len(cluster.notices)
    os.kill(victim, signal.SIGKILL)
    wait_until(
        lambda: [p for p in cluster.processes[role] if p != victim], 10, f"{role} started again"
    )
    restarts = [n for n in cluster.notices[num_notices:] if isinstance(n, Restarting)]
    assert [n.reason for n in restarts] == ["killed by SIGKILL"]
    wait_until(lambda: is_healthy(cluster), 30, "healthy again")
    assert answer(cluster) == before


def is_healthy(cluster: Cluster) -> bool:
    try:
        return httpx.get(f"{cluster.http_url}/health", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def test_ports_picked_by_the_system_survive_a_restart(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(port=0, grpc_port=0, num_workers=2)
    assert len(cluster.processes["worker"]) == 2
    url = cluster.local.http_url
    assert url is not None
    assert not url.endswith(":0")
    (frontend,) = cluster.processes["frontend"]
    os.kill(frontend, signal.SIGKILL)
    wait_until(lambda: cluster.processes["frontend"] not in ([], [frontend]), 10, "a new frontend")
    wait_until(lambda: is_healthy(cluster), 30, "healthy on the same port")
    assert cluster.local.http_url == url
    pids = list(cluster.local.pids().values())
    cluster.local.stop()
    assert [pid for pid in pids if is_running(pid)] == []


@pytest.mark.parametrize("field", ["port", "grpc_port"])
def test_a_taken_port_starts_nothing(field: str, tiny_checkpoint: Path, taken_port: int) -> None:
    ports = {"port": free_port(), "grpc_port": free_port(), field: taken_port}
    settings = {**TINY, **ports, "model": (str(tiny_checkpoint),)}
    local = LocalCluster(config_from_keywords(settings, {}).config)
    flag = "--" + field.replace("_", "-")
    with pytest.raises(StartupError, match=f"{flag}: cannot listen on .*{taken_port}"):
        local.start()
    assert local.pids() == {}
    local.stop()


def test_a_role_that_cannot_start_ends_all_with_its_reason(tiny_checkpoint: Path) -> None:
    settings = {**TINY, "model": (str(tiny_checkpoint),), "kv_cache_memory": "1KiB"}
    local = LocalCluster(config_from_keywords(settings, {}).config, has_http=False)
    local.start()
    try:
        with pytest.raises(StartupError, match=r"worker-0: .*--kv-cache-memory"):
            local.wait_ready(60)
        assert local.pids() == {}
    finally:
        local.stop()


def test_stopping_before_ready_leaves_nothing(tiny_checkpoint: Path) -> None:
    settings = {**TINY, "model": (str(tiny_checkpoint),)}
    local = LocalCluster(config_from_keywords(settings, {}).config, has_http=False)
    local.start()
    pids = wait_until(lambda: len(local.pids()) == 4 and list(local.pids().values()), 10, "start")
    local.stop()
    assert [pid for pid in pids if is_running(pid)] == []
    with pytest.raises(StartupError, match="stopped before"):
        local.wait_ready()


def test_every_process_serves_metrics_on_a_port_of_its_own(make_cluster: MakeCluster) -> None:
    first = free_ports(8)
    cluster = make_cluster(metrics_port=first)
    count = sum(len(pids) for pids in cluster.processes.values())
    pages = [httpx.get(f"http://127.0.0.1:{first + i}/metrics").text for i in range(count)]
    assert all("process_cpu_seconds_total" in page for page in pages)
