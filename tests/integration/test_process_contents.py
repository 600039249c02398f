"""What is loaded into the processes that must stay light."""

from pathlib import Path

import pytest

from support.cells.clusters import Cluster


def mapped_files(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("role", ["frontend", "scheduler", "kvstore"])
def test_only_workers_load_torch(cluster: Cluster, role: str) -> None:
    (pid,) = cluster.processes[role]
    assert "libtorch" not in mapped_files(pid)


def test_a_worker_does(cluster: Cluster) -> None:
    """Otherwise the test above would pass for any name."""
    (pid,) = cluster.processes["worker"]
    assert "libtorch" in mapped_files(pid)
