"""Roles that tests fork run, end and fail as those that are started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.processes import forked
from support.processes.forked import ForkedPopen

ROLE = (sys.executable, "-P", "-m", "pagewire_kvstore", "--exit-with-parent")


def started(*flags: str, **settings: Any) -> "subprocess.Popen[str]":
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*ROLE, *flags], text=True, **pipes, **settings)


def is_forked(process: "subprocess.Popen[str]") -> bool:
    return b"fork_server" in Path(f"/proc/{process.pid}/cmdline").read_bytes()


@pytest.fixture(autouse=True)
def own() -> Iterator[None]:
    """Other tests may have taken all fork servers of this process."""
    with forked.own_servers():
        yield


@pytest.fixture
def listen(tmp_path: Path) -> str:
    return f"--listen=unix:{tmp_path / 'store'}"


def test_it_runs_where_and_as_it_should(listen: str, tmp_path: Path) -> None:
    environ = {**os.environ, "PAGEWIRE_LOG_LEVEL": "error"}
    with started(listen, process_group=0, cwd=tmp_path, env=environ) as process:
        assert process.stdout is not None
        assert "listening" in process.stdout.readline()
        assert isinstance(process, ForkedPopen)
        assert is_forked(process)
        assert os.getpgid(process.pid) == process.pid
        assert Path(f"/proc/{process.pid}/cwd").resolve() == tmp_path.resolve()
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.terminate()
        assert process.wait(20) == 0
        assert process.poll() == 0


def test_how_it_ends_is_seen(listen: str) -> None:
    with started(listen) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        assert process.wait(20) == -signal.SIGKILL
    with started("--no-such-flag") as process:
        _, error = process.communicate(timeout=20)
        assert process.returncode != 0
        assert "--no-such-flag" in error
    with started(listen) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(20) == 1, "its parent's end is its own"


def test_others_are_started(listen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked, "MAX_SERVERS", 0)
    with started(listen) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert not is_forked(process)
        process.kill()
    assert subprocess.run([sys.executable, "-c", "exit(3)"], check=False).returncode == 3
