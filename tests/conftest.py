"""Rules that hold for every test: outside tools, and tests that need a device."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest._code import code as shown_code

from support import interpreted as interpreted  # first: it sets what NumPy and Triton read
from support.poison import poisoned
from support.processes.forked import fork_roles
from support.tools import missing, tool

ROOT = Path(__file__).resolve().parents[1]
CLIENTS = ROOT / ".venv-clients"
TOOLS = ROOT / ".tools"
# What `make tools` has fetched is found after what the machine has.
os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", os.defpath), str(TOOLS / "bin")))


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str, str], str]:
    """Return ``require_tool(name, install_command)``: the path of an outside program.

    Where it is missing the test is skipped, naming the command that installs it; with
    PAGEWIRE_REQUIRE_TOOLS=1, set where the tools were just installed, the test fails instead.
    """

    return tool


@pytest.fixture
def poisoned_kernels() -> Iterator[None]:
    """Kernels of Triton stay within their tensors and read only what was written: it is checked,
    and takes half the time of the plain interpreter."""
    with poisoned():
        yield


@pytest.fixture(scope="session")
def clients_python() -> str:
    """The Python of the environment with the client libraries; skips or fails as `require_tool`."""
    stamp = CLIENTS / ".installed"
    wanted = ROOT / "tests" / "clients" / "requirements.txt"
    if not stamp.exists() or stamp.stat().st_mtime < wanted.stat().st_mtime:
        missing("the client libraries are not installed, or others than are wanted: make clients")
    return str(CLIENTS / "bin" / "python")


@pytest.fixture(scope="session")
def helm() -> str:
    """The program that renders the chart; skips or fails as `require_tool`. Beside it, in
    `packages`, are the schemas of Kubernetes' objects."""
    wanted = ROOT / "tests" / "tools" / "requirements.txt"
    for needed in (TOOLS / "helm", TOOLS / "packages"):
        if not needed.exists() or needed.stat().st_mtime < wanted.stat().st_mtime:
            missing("helm is not installed, or another one than is wanted: make tools")
    return str(TOOLS / "helm")


def _guard_tracebacks() -> None:
    """Show a failure without its source where Python cannot parse that: before 3.13 a SystemError,
    while another thread parses. It would end the whole run."""
    parse = shown_code.getstatementrange_ast

    def parse_or_not(*arguments: Any, **named: Any) -> Any:
        try:
            return parse(*arguments, **named)
        except SystemError as error:
            raise SyntaxError(str(error)) from error

    shown_code.getstatementrange_ast = parse_or_not


def pytest_configure() -> None:
    """Let roles that tests start be forked; with a method in TEST_SPECULATION, deployments that
    tests start have drafts."""
    fork_roles()
    _guard_tracebacks()
    if method := os.environ.get("TEST_SPECULATION"):
        from support.speculated.everywhere import speculate_everywhere

        speculate_everywhere(method)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked gpu where there is no CUDA device; torch is imported only to ask."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
