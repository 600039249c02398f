"""Starts stores of other projects. Run by `make test-kv-ecosystem`, in an environment with them."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.cells.kv_cells import Answer, ask_all, running
from support.cells.outside_cells import PROMPTS
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.outside_stores import LmcacheServer, MooncakeLender, MooncakeMaster

HERE = Path(__file__).parent
WANTED = "TEST_KV_ECOSYSTEM"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get(WANTED) == "1":
        return
    skip = pytest.mark.skip(reason="stores of other projects: make test-kv-ecosystem")
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("ecosystem") / "model", hidden=64, layers=2)


@pytest.fixture(scope="session")
def expected(checkpoint: Path) -> list[Answer]:
    """The answers of a cell without any store."""
    with running(checkpoint, kv_offload="off") as cluster:
        return asyncio.run(ask_all(cluster, PROMPTS))


@pytest.fixture
def mooncake(tmp_path: Path) -> Iterator[MooncakeMaster]:
    with MooncakeMaster(tmp_path) as master, MooncakeLender(master):
        yield master


@pytest.fixture
def lmcache(tmp_path: Path) -> Iterator[LmcacheServer]:
    with LmcacheServer(tmp_path) as server:
        yield server


@pytest.fixture(params=["mooncake", "lmcache"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[MooncakeMaster | LmcacheServer]:
    with ExitStack() as ends:
        if request.param == "lmcache":
            yield ends.enter_context(LmcacheServer(tmp_path))
            return
        master = ends.enter_context(MooncakeMaster(tmp_path))
        ends.enter_context(MooncakeLender(master))
        yield master
