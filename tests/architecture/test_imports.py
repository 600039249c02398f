"""What an import loads, asked of real interpreters, and where generated messages may be seen.

The static contracts (layers, who imports torch, redis, ...) are import-linter's, in pyproject.toml.
"""

import ast
import subprocess
import sys

import pytest

from support.source_tree import (
    ROOT,
    exceptions,
    imported_names,
    package_folders,
    python_files,
    relative,
)

LOAD = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        importlib.import_module(module.name)
print("\\n".join(sorted({name.partition(".")[0] for name in sys.modules})))
"""

# Where generated messages stop: words of a module's name, or its folder. Everything else sees plain
# data.
MESSAGE_MODULES = {"service", "client", "link", "stream", "convert"}


def loaded_after(*command: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=100, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


@pytest.mark.parametrize("module", ["pagewire", "pagewire.config"])
def test_import_pagewire_is_light(module: str) -> None:
    """The configuration imports those of all roles, and needs none of their extras."""
    program = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    loaded = loaded_after("-c", program)
    assert "pagewire" in loaded
    assert loaded & {"torch", "transformers", "triton", "fastapi", "redis"} == set()
    assert loaded & {"grpc", "numpy", "prometheus_client", "pydantic", "tokenizers"} == set()


@pytest.mark.parametrize("role", ["scheduler", "kvstore"])
def test_what_streams_wait_for_starts_light(role: str) -> None:
    """Of a killed process's gap most is imports."""
    program = (
        f"import sys; from pagewire_{role}.__main__ import load; load();"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = loaded_after("-P", "-c", program)
    assert f"pagewire_{role}" in loaded
    heavy = {"torch", "transformers", "tokenizers", "fastapi", "pydantic", "yaml"}
    assert loaded & heavy == set()


@pytest.mark.parametrize(
    "package", ["pagewire", "pagewire_frontend", "pagewire_scheduler", "pagewire_kvstore"]
)
def test_no_module_outside_the_worker_loads_torch(package: str) -> None:
    loaded = loaded_after("-c", LOAD, package, "pagewire_shared", "pagewire_protos")
    assert {package, "pagewire_shared", "pagewire_protos", "grpc"} <= loaded
    assert loaded & {"torch", "transformers", "triton", "safetensors"} == set()


def test_programs_do_nothing_when_imported() -> None:
    """The walk above imports every ``__main__``; only a guard keeps it from starting."""
    for path in python_files():
        if path.name == "__main__.py":
            guards = [node for node in ast.parse(path.read_text()).body if is_main_guard(node)]
            assert guards, f"{relative(path)} has no `if __name__ == ...` guard"


def is_main_guard(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def sees_messages() -> set[str]:
    """Files of the packages that import messages and have no name that entitles them to."""
    return {
        relative(path)
        for folder in package_folders()
        for path in folder.rglob("*.py")
        if folder.name != "pagewire_protos"
        and not {*path.stem.split("_"), path.parent.name} & MESSAGE_MODULES
        and any(is_message_module(name) for name in imported_names(path.read_text()))
    }


def is_message_module(name: str) -> bool:
    """True for messages; stubs (``_pb2_grpc``) are what a main program registers services with."""
    package, *rest = name.split(".")
    return package == "pagewire_protos" and not any(part.endswith("_pb2_grpc") for part in rest)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from pagewire_protos.a.v1 import a_pb2", True),
        ("from pagewire_protos.a.v1.a_pb2 import Ping", True),
        ("def f():\n    import pagewire_protos.a.v1.a_pb2", True),
        ("from pagewire_protos.a.v1 import a_pb2_grpc", False),
        ("from pagewire_protos.a.v1.a_pb2_grpc import AServiceStub", False),
        ("from pagewire_shared import convert", False),
    ],
)
def test_imports_of_messages_are_seen(source: str, expected: bool) -> None:
    assert any(is_message_module(name) for name in imported_names(source)) is expected


def test_generated_messages_stop_at_the_edge() -> None:
    assert sees_messages() == set(exceptions()["message_imports"])


def test_packages_are_where_the_wheel_looks_for_them() -> None:
    found = {
        path.parent
        for pattern in ("pagewire", "shared/*", "protos/gen/*", "services/*/*")
        for path in ROOT.glob(f"{pattern}/__init__.py")
    }
    assert found == set(package_folders())


def test_every_package_is_typed() -> None:
    assert [relative(f) for f in package_folders() if not (f / "py.typed").is_file()] == []
