"""Starts a cluster of Ray on this machine. Run by `make test-ray`, in an environment with Ray."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.cells.ray_nodes import ray_nodes

HERE = Path(__file__).parent
WANTED = "TEST_RAY"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(WANTED) == "1":
        return
    skip = pytest.mark.skip(reason="a cluster of Ray: make test-ray")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(skip)


@pytest.fixture
def ray_cluster() -> Iterator[Any]:
    """Two nodes; workers that tests start find them, and are on the first one."""
    with ray_nodes() as cluster:
        yield cluster
