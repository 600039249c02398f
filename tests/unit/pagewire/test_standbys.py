"""Processes that stand by: real ones, of the scheduler, which starts fastest."""

import os
import queue
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pagewire.local.child_process import (
    ChildEvent,
    ChildProcess,
    Exited,
    LineReceived,
    StatusReceived,
)
from pagewire.local.layout import ChildSpec
from pagewire.local.standbys import Standbys
from support.processes.processes import free_port, is_running

PATIENCE_SECONDS = 60.0


class Launched:
    """What the tests start, and what it tells."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "s"
        self.metrics_port = free_port()
        self.processes: list[ChildProcess] = []
        self.standbys = Standbys(self.launch)
        self._told: queue.SimpleQueue[tuple[ChildProcess, ChildEvent]] = queue.SimpleQueue()

    @property
    def spec(self) -> ChildSpec:
        flags = ("--listen", f"unix:{self.socket}", "--metrics-port", str(self.metrics_port))
        return ChildSpec("scheduler", "scheduler", flags)

    @property
    def shows_metrics(self) -> bool:
        """Whether somebody listens on the port."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.metrics_port)) == 0

    def launch(self, spec: ChildSpec, *, is_standby: bool) -> ChildProcess:
        command = [*spec.command, *(["--standby"] if is_standby else [])]
        process = ChildProcess(
            name=spec.name, role=spec.role, command=command, environ=os.environ, post=self._post
        )
        self.processes.append(process)
        return process

    def until(self, wanted: str) -> tuple[ChildProcess, list[str]]:
        """Wait for a status, or "exited"; return whose it is and what came before it."""
        before: list[str] = []
        while True:
            process, event = self._told.get(timeout=PATIENCE_SECONDS)
            match event:
                case LineReceived(_, text):
                    what = text
                case StatusReceived(_, status):
                    what = str(status["event"])
                case Exited():
                    what = "exited"
            if what == wanted:
                return process, before
            before.append(what)

    def _post(self, process: ChildProcess, event: ChildEvent) -> None:
        self._told.put((process, event))


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    launched = Launched(tmp_path)
    yield launched
    for process in launched.processes:
        process.kill()
        process.wait_gone(PATIENCE_SECONDS)


def test_a_standby_takes_no_resources_until_it_serves(launched: Launched) -> None:
    standbys = launched.standbys
    pid = standbys.prepare(launched.spec)
    process, before = launched.until("standby")
    assert before == []
    assert process.pid == pid
    assert standbys.owns(process)
    assert "scheduler" in standbys
    assert not launched.socket.exists()
    assert not launched.shows_metrics
    assert standbys.take("scheduler") is process
    assert not standbys.owns(process)
    assert launched.until("ready") == (process, ["listening"])
    assert launched.socket.exists()
    assert launched.shows_metrics
    assert standbys.take("scheduler") is None
    process.terminate()
    launched.until("exited")


def test_a_standby_that_imports_serves_after_go(launched: Launched) -> None:
    launched.standbys.prepare(launched.spec)
    process = launched.standbys.take("scheduler")
    assert launched.until("ready") == (process, ["standby", "listening"])


def test_a_dismissed_standby_ends(launched: Launched) -> None:
    standbys = launched.standbys
    pid = standbys.prepare(launched.spec)
    assert standbys.dismiss("scheduler")
    assert not standbys.dismiss("scheduler")
    assert standbys.take("scheduler") is None
    process, _ = launched.until("exited")
    assert standbys.owns(process)
    assert not standbys.exited(process)
    assert not standbys.owns(process)
    assert not is_running(pid)


def test_a_late_exit_of_a_dismissed_standby_does_not_end_the_next(launched: Launched) -> None:
    standbys = launched.standbys
    first = standbys.prepare(launched.spec)
    standbys.dismiss("scheduler")
    second = standbys.prepare(launched.spec)
    process, _ = launched.until("exited")
    assert process.pid == first
    assert not standbys.exited(process)
    assert "scheduler" in standbys
    taken = standbys.take("scheduler")
    assert taken is not None
    assert taken.pid == second


def test_a_standby_that_ended_is_not_taken(launched: Launched) -> None:
    standbys = launched.standbys
    os.kill(standbys.prepare(launched.spec), signal.SIGKILL)
    process, _ = launched.until("exited")
    assert standbys.exited(process)
    assert "scheduler" not in standbys
    assert standbys.take("scheduler") is None


def test_end_leaves_no_standby(launched: Launched) -> None:
    standbys = launched.standbys
    standbys.prepare(launched.spec)
    standbys.dismiss("scheduler")
    standbys.prepare(launched.spec)
    standbys.end()
    assert [process.pid for process in launched.processes if is_running(process.pid)] == []


def test_a_standby_ends_at_sigterm(launched: Launched) -> None:
    standbys = launched.standbys
    standbys.prepare(launched.spec)
    process, _ = launched.until("standby")
    process.terminate()
    assert launched.until("exited")[0] is process
    assert not launched.socket.exists()


def test_a_standby_ends_with_its_parent(launched: Launched) -> None:
    standbys = launched.standbys
    standbys.prepare(launched.spec)
    process, _ = launched.until("standby")
    stdin = process._process.stdin
    assert stdin is not None
    stdin.close()
    assert launched.until("exited")[0] is process


def test_a_standby_without_a_parent_is_refused(launched: Launched) -> None:
    spec = launched.spec
    command = [word for word in spec.command if word != "--exit-with-parent"]
    process = ChildProcess(
        name=spec.name,
        role=spec.role,
        command=[*command, "--standby"],
        environ=os.environ,
        post=launched._post,
    )
    launched.processes.append(process)
    _, before = launched.until("exited")
    assert any("--standby needs --exit-with-parent" in line for line in before)
