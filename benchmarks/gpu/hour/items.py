"""What an item of the first hour is, and how its command is written."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PYTHON, JSON, SCRATCH = "{python}", "{json}", "{scratch}"
"""Stand in commands for this Python, the file of the results, and a folder of the run."""

KERNELS = frozenset({"torch", "triton", "numpy"})
"""Modules that have to be importable for kernels alone."""

WORKER = KERNELS | {
    "awscrt",
    "blake3",
    "google.protobuf",
    "grpc",
    "grpc_health",
    "llguidance",
    "prometheus_client",
    "safetensors",
    "tokenizers",
    "transformers",
}
"""For a worker's model in one process."""

CELL = WORKER | {
    "fastapi",
    "grpc_reflection",
    "httptools",
    "jinja2",
    "jiter",
    "opentelemetry",
    "orjson",
    "pydantic",
    "redis",
    "tqdm",
    "uvicorn",
    "uvloop",
    "yaml",
}
"""For frontend, scheduler and worker as processes."""

_DISTRIBUTIONS = {
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "opentelemetry": "opentelemetry-api",
    "prometheus_client": "prometheus-client",
    "yaml": "PyYAML",
}


def distributions(modules: Iterable[str]) -> list[str]:
    """Return what has to be installed for modules."""
    return [_DISTRIBUTIONS.get(name, name) for name in modules]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One process of the first hour.

    Attributes:
        name: Short, unique.
        command: Arguments, from the repository's root; may hold PYTHON, JSON and SCRATCH.
        toy: The same on a CPU at a tiny size. Items with equal ones share a rehearsal.
        shows: What is known once it has passed.
        check: The line of docs/gpu-checks.md that it fills.
        rows: Goals that its figures fill.
        seconds, limit: Expected on an H200, and at most.
        needs: Items without which it cannot run; they have passed before it starts.
        proven_by: Items that show that what it measures is right. It runs whatever they found.
        instead_of: Runs only if that item did not pass.
        modules: That must be importable.
        capability: Least compute capability of the device.
        gib: Memory of the device that it takes.
        has_kernels: It compiles kernels, for which Triton needs a C compiler.
        is_in_every_call: Runs at the beginning of each call.
    """

    name: str
    command: tuple[str, ...]
    toy: tuple[str, ...]
    shows: str
    check: str = ""
    rows: tuple[int, ...] = ()
    seconds: int
    limit: int
    needs: tuple[str, ...] = ()
    proven_by: tuple[str, ...] = ()
    instead_of: str = ""
    modules: frozenset[str] = KERNELS
    capability: tuple[int, int] = (8, 0)
    gib: int = 2
    has_kernels: bool = True
    is_in_every_call: bool = False

    @property
    def is_pytest(self) -> bool:
        """Whether it is a selection of tests."""
        return self.command[1:3] == ("-m", "pytest")


def filled(command: tuple[str, ...], places: Mapping[str, str]) -> list[str]:
    """Return a command's arguments with PYTHON, JSON and SCRATCH replaced by `places`."""
    words = []
    for word in command:
        for name, value in places.items():
            word = word.replace(name, value)
        words.append(word)
    return words


def shown_command(command: tuple[str, ...]) -> str:
    """Return a command as a reader would type it: without the file for the results."""
    words = list(command)
    if JSON in words:
        at = words.index(JSON)
        del words[at - 1 : at + 1]
    return shlex.join(filled(tuple(words), {PYTHON: "python", SCRATCH: "build/first-hour"}))


def short_command(command: tuple[str, ...]) -> str:
    """Return a command for a table: pytest without its options."""
    if command[: len(PYTEST)] == PYTEST:
        return shlex.join(("pytest", *command[len(PYTEST) :]))
    return shown_command(command).partition(" --modules")[0]


PYTEST = (
    *(PYTHON, "-m", "pytest", "-c", "benchmarks/gpu/hour/pytest.ini", "--rootdir", "."),
    *("-p", "no:cacheprovider", "-v", "--maxfail", "5"),
)

COLLECTED = (*PYTEST, "--collect-only", "-q", "tests/gpu")
"""How tests of a device are rehearsed: all are collected, at once."""


def gpu_tests(file: str, test: str = "", *, keyword: str = "") -> tuple[str, ...]:
    """Return the command for a file of tests/gpu, one test of it, or what a keyword selects."""
    place = f"tests/gpu/test_cuda_{file}.py" + (f"::{test}" if test else "")
    return (*PYTEST, *(("-k", keyword) if keyword else ()), place)


def script(path: str, *arguments: str) -> tuple[str, ...]:
    """Return the command for a program of benchmarks/gpu that writes its results as JSON."""
    return (PYTHON, f"benchmarks/gpu/{path}", *arguments, "--output", JSON)


SOURCES = (
    *("", "shared", "protos/gen", "tests", "benchmarks/gpu/hour/site"),
    *(f"services/{role}" for role in ("frontend", "kvstore", "scheduler", "worker")),
)
"""Folders of the repository that hold packages: it runs where Pagewire is not installed."""


def variables() -> str:
    """Return what a reader sets before a command, where Pagewire is not installed."""
    return "PYTHONPATH=" + ":".join(f"$PWD/{folder}".rstrip("/") for folder in SOURCES)
