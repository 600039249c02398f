"""The examples: one small program in each of five languages, built and run against a real cluster.
Each lists models, streams a chat, makes a tool call, misses a deadline and makes a mistake."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pagewire.client.blocking_client import Client
from pagewire.client.events import Delta, Finished
from pagewire.models import BUILTIN_FOLDER, BUILTIN_NAME
from support.cells.clusters import Cluster, start_cluster
from support.processes.processes import free_port
from support.tools import npm_install

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES, PROTOS = ROOT / "examples", ROOT / "protos"

Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Language:
    """What a language needs here; `files` stand for libraries."""

    name: str
    tools: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    packages: str = ""


LANGUAGES = (
    Language("python"),
    Language("node", tools=("node", "npm"), packages="nodejs npm"),
    Language(
        "go",
        tools=("make", "protoc", "go", "protoc-gen-go", "protoc-gen-go-grpc"),
        files=("/usr/share/gocode/src/google.golang.org/grpc",),
        packages="make protobuf-compiler golang-go golang-google-grpc-dev protoc-gen-go-grpc "
        "protoc-gen-go-1-5 golang-github-golang-protobuf-1-5-dev",
    ),
    Language(
        "cpp",
        tools=("make", "protoc", "g++", "pkg-config", "grpc_cpp_plugin"),
        files=("/usr/include/grpcpp/grpcpp.h",),
        packages="make g++ pkg-config libgrpc++-dev protobuf-compiler protobuf-compiler-grpc",
    ),
    Language(
        "java",
        tools=("make", "protoc", "javac", "grpc_java_plugin"),
        files=("/usr/share/java/grpc-netty.jar", "/usr/share/java/protobuf.jar"),
        packages="make openjdk-17-jdk-headless protobuf-compiler libgrpc-java libprotobuf-java "
        "protobuf-compiler-grpc-java-plugin libguava-java libnetty-java libperfmark-java "
        "libgeronimo-annotation-1.3-spec-java",
    ),
)
# Half a minute of building on two idle cores.
LONG = dict.fromkeys(("cpp", "java"), (pytest.mark.long, pytest.mark.timeout(400)))


@pytest.fixture(scope="module")
def server() -> Iterator[Cluster]:
    """The built-in model, as the examples are told to expect it."""
    started = start_cluster(BUILTIN_FOLDER, model=(BUILTIN_NAME,))
    yield started
    started.local.stop()


@pytest.fixture(scope="module")
def story(server: Cluster) -> str:
    """What the examples ask for, from a client that other tests hold to its word."""
    turn = {"role": "user", "content": "Tell me a story about a fox."}
    with Client(server.grpc_address) as client:
        events = client.chat([turn], {"temperature": 0, "max_tokens": 24})
        return "".join(e.text for e in events if isinstance(e, Delta | Finished))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(language, id=language.name, marks=LONG.get(language.name, ()))
        for language in LANGUAGES
    ],
)
def example(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    require_tool: Callable[[str, str], str],
) -> Run:
    """Build the example of a language outside the source tree; returns what runs it."""
    language: Language = request.param
    for tool in language.tools:
        require_tool(tool, f"apt-get install {language.packages}")
    for file in language.files:
        require_file(file, f"apt-get install {language.packages}")
    command = build(language.name, tmp_path_factory.mktemp(language.name))

    def run(address: str) -> "subprocess.CompletedProcess[str]":
        asked = [address, str(PROTOS)] if language.name == "node" else [address]
        return subprocess.run(
            [*command, *asked], capture_output=True, text=True, timeout=60, check=False
        )

    return run


def build(language: str, folder: Path) -> list[str]:
    """Build in `folder`; returns the command that runs it."""
    if language == "python":
        return [sys.executable, str(EXAMPLES / "python/client.py")]
    if language == "node":
        for name in ("client.js", "package.json"):
            shutil.copy(EXAMPLES / "node" / name, folder)
        npm_install(folder)
        return ["node", str(folder / "client.js")]
    run_build(["make", "-j2", f"BUILD={folder}"], EXAMPLES / language)
    return [str(folder / "client")]


def run_build(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def require_file(path: str, install_command: str) -> None:
    if Path(path).exists():
        return
    reason = f"{path} is not there: {install_command}"
    if os.environ.get("PAGEWIRE_REQUIRE_TOOLS") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def test_an_example_says_what_it_saw_and_what_fails(
    example: Run, server: Cluster, story: str
) -> None:
    done = example(server.grpc_address)
    assert done.returncode == 0, done.stdout + done.stderr
    models, chat, tokens, call, deadline, error = done.stdout.splitlines()
    assert models == f"model: {BUILTIN_NAME}, 2048 tokens"
    assert (chat, tokens) == (f"chat: {story}", "tokens: 24")
    assert re.fullmatch(r'tool call: get_weather .*\b(Oslo|Lima)\b("\s*})?', call)
    assert deadline == "deadline: DEADLINE_EXCEEDED"
    assert error.startswith("error: INVALID_ARGUMENT, field temperature: temperature must be ")

    lonely = example(f"127.0.0.1:{free_port()}")
    assert lonely.returncode != 0
    assert lonely.stderr
    assert not lonely.stdout
