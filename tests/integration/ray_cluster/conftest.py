"""Starts a cluster of Ray on this machine. Run by `make test-ray`, in an environment with Ray."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
WANTED = "TEST_RAY"
NODE_CPUS = 1
"""So that a node has room for one host of ranks."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(WANTED) == "1":
        return
    skip = pytest.mark.skip(reason="a cluster of Ray: make test-ray")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(skip)


@pytest.fixture
def ray_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes; workers that tests start find them, and are on the first one."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # By default tasks have the niceness 15: the ranks of a worker would have unlike shares.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    node = {"num_cpus": NODE_CPUS, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    node.pop("include_dashboard")
    cluster.add_node(**node)
    cluster.wait_for_nodes()
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    cluster.shutdown()
