"""One child process: starts it with pipes, reads its output in threads and sends it signals."""

import contextlib
import functools
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from pagewire_shared.process.probe_answers import PROBE
from pagewire_shared.process.standby import GO
from pagewire_shared.process.status import parse_status

READERS_JOIN_SECONDS = 1.0
"""Longest wait for the pipes of an exited child; a process that it started may keep them open."""


@dataclass(frozen=True, slots=True)
class StatusReceived:
    """A status line of a child."""

    name: str
    status: dict[str, Any]


@dataclass(frozen=True, slots=True)
class LineReceived:
    """A line that a child wrote, usually a log line."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Exited:
    """A child's process has ended.

    Attributes:
        name: Name of the child.
        status: Exit status; negative for a signal.
        reason: Signal or status and the last line that the child wrote, for a person.
    """

    name: str
    status: int
    reason: str


ChildEvent = StatusReceived | LineReceived | Exited


class ChildProcess:
    """A running process.

    Events arrive through `post`, with this object, from several threads; `Exited` is the last. The
    child watches its standard input, of which only this process has the other end: the child exits
    when this process ends, even after a kill.
    """

    def __init__(
        self,
        *,
        name: str,
        role: str,
        command: Sequence[str],
        environ: Mapping[str, str],
        post: Callable[["ChildProcess", ChildEvent], None],
    ) -> None:
        self.name = name
        self._post = functools.partial(post, self)
        self._error_prefix = f"pagewire {role}: error: "
        self._last_line = ""
        self._stdin_lock = threading.Lock()
        # In its own process group: Ctrl-C reaches only the parent, which stops children in order.
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            process_group=0,
        )
        self._readers = [
            self._thread("stdout", self._read_stdout),
            self._thread("stderr", self._read_stderr),
        ]
        self._exit = self._thread("exit", self._wait)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def ask(self) -> None:
        """Ask whether the child makes progress; the answer is a status "alive".

        Never waits, because callers ask again only after an answer. Has no effect on a process that
        has ended.
        """
        self._say(PROBE)

    def go(self) -> None:
        """Let a standby process serve; has no effect on a process that has ended."""
        self._say(GO)

    def terminate(self) -> None:
        """Send SIGTERM; has no effect on a process that has ended."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL; has no effect on a process that has ended."""
        self._process.kill()

    def wait_gone(self, timeout_seconds: float) -> None:
        """Return when the process has ended and its `Exited` is posted, or after the timeout."""
        self._exit.join(timeout_seconds)

    def _say(self, what: bytes) -> None:
        with self._stdin_lock, contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.write(what)
            self._process.stdin.flush()

    def _thread(self, what: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"{self.name}-{what}", daemon=True)
        thread.start()
        return thread

    def _read_stdout(self) -> None:
        for line in _lines(self._process.stdout):
            status = parse_status(line)
            if status is None:
                self._post(LineReceived(self.name, line))
            else:
                self._post(StatusReceived(self.name, status))

    def _read_stderr(self) -> None:
        for line in _lines(self._process.stderr):
            # The reason of a failure also comes as a status, and is shown once.
            if line.startswith(self._error_prefix):
                continue
            if line:
                self._last_line = line
            self._post(LineReceived(self.name, line))

    def _wait(self) -> None:
        status = self._process.wait()
        for reader in self._readers:
            reader.join(READERS_JOIN_SECONDS)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            # A reader that still reads has locked its stream; closing would wait for it.
            if not any(reader.is_alive() for reader in self._readers):
                with self._stdin_lock, contextlib.suppress(OSError):
                    stream.close()
        self._post(Exited(self.name, status, describe_exit(status, self._last_line)))


def _lines(stream: IO[bytes] | None) -> Iterator[str]:
    assert stream is not None
    for line in stream:
        yield line.decode(errors="replace").rstrip("\r\n")


def describe_exit(status: int, last_line: str) -> str:
    """Return the end of a process: "killed by SIGKILL" or "exit status 1", and its last line."""
    if status < 0:
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"
    how = f"exit status {status}"
    return f"{how}: {last_line.strip()}" if last_line and status else how
