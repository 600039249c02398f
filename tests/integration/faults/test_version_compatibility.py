"""Roles of the version before this one work in a cell of today, or are refused with the reason."""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import grpc.aio
import pytest

from pagewire_protos.frontend.v1 import inference_pb2_grpc
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from support.cells.kv_cells import Answer, ask_all, prompt_of
from support.cells.role_cells import MODEL, RoleCell, role_cell, worker_names
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.kv_stores import wait_for_blocks
from support.processes.processes import wait_until
from support.processes.released_trees import (
    ROOT,
    NoHistoryError,
    cut_commit,
    extract,
    place_from,
    previous_version,
)
from support.processes.role_processes import Place, RoleProcess
from support.products import WHOLE
from support.tools import tool
from support.traffic.streams import Stream, audit, completion, eventually_clean

NUM_STREAMS = 6
NUM_TOKENS = 160
BLOCK_SIZE = 16
PATIENCE_SECONDS = 60.0
PROMPTS = [prompt_of(number, 30 + 20 * number) for number in range(NUM_STREAMS)]
NUM_FULL_BLOCKS = sum(len(prompt) // BLOCK_SIZE for prompt in PROMPTS)
ROLES = ("frontend", "scheduler", "worker", "kvstore")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The services of the previous version."""
    tool("git", "apt-get install git")
    version = previous_version((ROOT / "CHANGELOG.md").read_text())
    folder = tmp_path_factory.mktemp("released") / version
    try:
        return extract(ROOT, cut_commit(ROOT, version), folder)
    except NoHistoryError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough for a stream to last a second or more."""
    folder = tmp_path_factory.mktemp("versions") / "model"
    return make_checkpoint(folder, architecture="Qwen3ForCausalLM", hidden=256, layers=4)


@contextlib.contextmanager
def mixed_cell(
    checkpoint: Path,
    folder: Path,
    tree: Path,
    old: Sequence[str],
    workers: Sequence[str] = ("worker-0",),
    scheduler: Sequence[str] = (),
) -> Iterator[RoleCell]:
    """A cell in which the members called `old` run the code of `tree`.

    Args:
        scheduler: Further flags of the scheduler.
    """

    def find_place(name: str, role: str) -> Place:
        address = f"unix:{folder / name}.sock"
        return place_from(tree, role, address) if name in old else Place(address)

    flags = {"scheduler": ("--kv-load", "always", *scheduler)}
    with role_cell(checkpoint, workers, find_place, flags=flags) as cell:
        for name in old:
            environ = Path(f"/proc/{cell.members[name].pid}/environ").read_bytes()
            assert f"PYTHONPATH={tree}".encode() in environ
        yield cell


@pytest.fixture(scope="module")
def expected(
    checkpoint: Path, tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Answer]:
    """What a cell of today answers."""
    with mixed_cell(checkpoint, tmp_path_factory.mktemp("today"), tree, old=()) as cell:
        return asyncio.run(ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS))


def tokens(answers: Sequence[Answer]) -> list[list[int]]:
    return [answer.token_ids for answer in answers]


async def forget(cell: RoleCell) -> None:
    """Let the scheduler forget what its workers have computed."""
    async with grpc.aio.insecure_channel(cell.grpc_address) as channel:
        stub = admin_pb2_grpc.AdminServiceStub(channel)
        await stub.ResetPrefixCache(admin_pb2.ResetPrefixCacheRequest())


@pytest.mark.parametrize("role", ROLES)
def test_a_role_of_the_previous_version(
    checkpoint: Path, tree: Path, tmp_path: Path, expected: list[Answer], role: str
) -> None:
    old = "worker-0" if role == "worker" else role
    with mixed_cell(checkpoint, tmp_path, tree, [old]) as cell:
        answers = asyncio.run(ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS))
        assert tokens(answers) == tokens(expected)
        wait_for_blocks(cell.members["kvstore"].place.address, NUM_FULL_BLOCKS)

        def is_loaded() -> bool:
            asyncio.run(forget(cell))
            again = asyncio.run(ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS))
            assert tokens(again) == tokens(expected)
            return any(answer.num_loaded for answer in again)

        # Some loads are late on a machine that does something else.
        wait_until(is_loaded, PATIENCE_SECONDS, "blocks come from the store")
        asyncio.run(eventually_clean(cell.grpc_address, 1, PATIENCE_SECONDS))


async def with_worker_killed(cell: RoleCell, name: str) -> list[Stream]:
    """Follow all streams; kill a worker when each has some tokens and none has ended."""
    requests = [completion(MODEL, prompt, NUM_TOKENS) for prompt in PROMPTS]
    async with grpc.aio.insecure_channel(cell.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [Stream(request) for request in requests]
        tasks = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while min(len(stream.token_ids) for stream in streams) < 5:
                await asyncio.sleep(0.002)
        pools = (await audit(cell.grpc_address)).scheduler.pools
        assert sum(pool.num_slots > 0 for pool in pools) == 2, "others generate nothing"
        assert not any(stream.is_closed for stream in streams)
        await asyncio.to_thread(cell.members[name].kill)
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE_SECONDS)
    return streams


@pytest.mark.parametrize(
    "killed",
    [pytest.param("worker-0", id="old"), pytest.param("worker-1", id="new", marks=WHOLE)],
)
def test_streams_move_between_workers_of_two_versions(
    checkpoint: Path, tree: Path, tmp_path: Path, expected: list[Answer], killed: str
) -> None:
    workers = worker_names(num_workers=2)
    with mixed_cell(checkpoint, tmp_path, tree, ["worker-0"], workers) as cell:
        streams = asyncio.run(with_worker_killed(cell, killed))
        assert [stream.error for stream in streams] == [""] * NUM_STREAMS
        assert [stream.token_ids for stream in streams] == tokens(expected)
        asyncio.run(eventually_clean(cell.grpc_address, 1, PATIENCE_SECONDS))


@pytest.mark.parametrize(
    "killed",
    ["prefill-0", pytest.param("decode-0", marks=WHOLE)],
)
def test_a_worker_of_the_previous_version_beside_workers_of_one_role(
    checkpoint: Path, tree: Path, tmp_path: Path, expected: list[Answer], killed: str
) -> None:
    workers = worker_names(num_prefill=1, num_decode=1, num_workers=1)
    always = ("--handoff", "always")
    with mixed_cell(checkpoint, tmp_path, tree, ["worker-0"], workers, always) as cell:
        answers = asyncio.run(ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS))
        assert tokens(answers) == tokens(expected)
        asyncio.run(forget(cell))
        streams = asyncio.run(with_worker_killed(cell, killed))
        assert [stream.error for stream in streams] == [""] * NUM_STREAMS
        assert [stream.token_ids for stream in streams] == tokens(expected)
        asyncio.run(eventually_clean(cell.grpc_address, 2, PATIENCE_SECONDS))


def test_a_worker_of_another_protocol_is_refused_with_the_reason(
    checkpoint: Path, tree: Path, tmp_path: Path, expected: list[Answer]
) -> None:
    foreign = extract(ROOT, cut_commit(ROOT, tree.name), tmp_path / "foreign")
    with (foreign / "shared" / "pagewire_shared" / "__init__.py").open("a") as module:
        module.write("PROTOCOL_MIN, PROTOCOL_MAX = 90, 99\n")
    with mixed_cell(checkpoint, tmp_path, tree, old=()) as cell:
        template = cell.members["worker-0"]
        place = place_from(foreign, "worker", f"unix:{tmp_path}/foreign.sock")
        flags = [*template.flags, "--listen", place.address]
        with RoleProcess("foreign", "worker", place, flags) as worker:
            assert worker.wait_end(PATIENCE_SECONDS) == 1
            assert "protocol versions 90 to 99 are not spoken here" in worker.log
        answers = asyncio.run(ask_all(cell, PROMPTS, num_tokens=NUM_TOKENS))
        assert tokens(answers) == tokens(expected)


def test_other_code_than_that_of_the_version_is_not_run(tmp_path: Path) -> None:
    place = place_from(tmp_path, "worker", "unix:none")
    with RoleProcess("astray", "worker", place, ["--help"]) as worker:
        assert worker.wait_end(PATIENCE_SECONDS) == 1
        assert f"not from {tmp_path}" in worker.log


@pytest.mark.parametrize(
    ("unreleased", "version"), [("", "1.1.0"), ("### Added\n\n- A thing.\n\n", "1.2.0")]
)
def test_which_version_is_the_previous_one(unreleased: str, version: str) -> None:
    released = "## [1.2.0] - today\n\nText.\n\n## [1.1.0] - before\n\nText.\n"
    assert previous_version(f"# Changelog\n\n## [Unreleased]\n\n{unreleased}{released}") == version


def test_the_commit_that_cut_a_version(tmp_path: Path) -> None:
    tool("git", "apt-get install git")

    def git(*arguments: str, folder: Path = tmp_path / "whole") -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    (tmp_path / "whole").mkdir()
    git("init", "-q")
    commits = {}
    for number, version in enumerate(("0.9.0", "1.0.0", "1.0.0", "1.1.0", "1.1.0")):
        text = f'[project]\nname = "x{number}"\nversion = "{version}"\n'
        (tmp_path / "whole" / "pyproject.toml").write_text(text)
        git("add", ".")
        git("commit", "-qm", version)
        commits.setdefault(version, git("rev-parse", "HEAD"))
    for version in ("1.0.0", "1.1.0"):
        assert cut_commit(tmp_path / "whole", version) == commits[version]
    url = (tmp_path / "whole").as_uri()
    git("clone", "-q", "--depth", "1", url, str(tmp_path / "shallow"))
    with pytest.raises(NoHistoryError, match="unshallow"):
        cut_commit(tmp_path / "shallow", "1.1.0")
    (tmp_path / "none").mkdir()
    with pytest.raises(NoHistoryError, match="not a git repository"):
        cut_commit(tmp_path / "none", "1.1.0")
