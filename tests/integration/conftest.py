"""Whole deployments on tiny checkpoints, shared by the tests that only ask them something."""

import socket
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.cells.clusters import Cluster, MakeCluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.namespaces import Network, why_not

HAS_TOOLS = find_spec("pagewire_frontend.message.formats") is not None
BUILTIN = Path(__file__).resolve().parents[2] / "pagewire" / "builtin_model"


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random-weight Llama with a tokenizer and a chat template."""
    return make_checkpoint(tmp_path_factory.mktemp("checkpoints") / "tiny", hidden=64, layers=2)


@pytest.fixture
def make_cluster(tiny_checkpoint: Path) -> Iterator[MakeCluster]:
    """``make_cluster(checkpoint=tiny, **serve_flags)``: an own deployment for one test."""
    started: list[Cluster] = []

    def make(checkpoint: Path | None = None, **settings: Any) -> Cluster:
        started.append(start_cluster(checkpoint or tiny_checkpoint, **settings))
        return started[-1]

    yield make
    for cluster in started:
        cluster.local.stop()


@pytest.fixture(scope="session")
def cluster(tiny_checkpoint: Path) -> Iterator[Cluster]:
    """One deployment for all tests that do no harm to it."""
    shared = start_cluster(tiny_checkpoint)
    yield shared
    shared.local.stop()


@pytest.fixture(scope="session")
def builtin_cluster() -> Iterator[Cluster]:
    """The built-in model, for tests that need right answers, in float32 as transformers has it."""
    shared = start_cluster(
        BUILTIN,
        model=("pagewire-builtin",),
        kv_cache_memory="128MiB",
        max_num_batched_tokens=512,
        **({"tool_call_parser": ("hermes",)} if HAS_TOOLS else {}),
    )
    yield shared
    shared.local.stop()


@pytest.fixture
def tools() -> None:
    """For tests of tool calls."""
    if not HAS_TOOLS:
        pytest.skip("this version calls no tools")


@pytest.fixture
def network(require_tool: Callable[[str, str], str]) -> Iterator[Network]:
    """For cells over network namespaces; nothing of it is left afterwards."""
    yield from _network(require_tool)


@pytest.fixture(scope="module")
def shared_network(require_tool: Callable[[str, str], str]) -> Iterator[Network]:
    """The same for a cell that all tests of a module use."""
    yield from _network(require_tool)


def _network(require_tool: Callable[[str, str], str]) -> Iterator[Network]:
    for tool in ("ip", "tc"):
        require_tool(tool, "apt-get install iproute2")
    if reason := why_not():
        pytest.skip(reason)
    with Network() as network:
        yield network


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A port that another program listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]
