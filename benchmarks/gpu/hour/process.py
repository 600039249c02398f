"""One item as a process of its own: with a limit, and nothing left of it afterwards."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TOKEN_VARIABLE = "PAGEWIRE_FIRST_HOUR_TOKEN"
"""Its children inherit it: those that left the group of processes are found by it."""

TRACEBACK_SECONDS = 3.0
"""For a process that is told to abort: Python then prints where every thread stands."""


@dataclass(frozen=True, slots=True)
class Ran:
    """How a process ended.

    Attributes:
        code: Its exit code, negative for a signal.
        is_over_limit: It was killed because its time was up.
        seconds: How long it ran.
        output: The end of what it and its children printed.
    """

    code: int
    is_over_limit: bool
    seconds: float
    output: str


class _Tail(threading.Thread):
    """Reads a pipe and keeps its last bytes."""

    def __init__(self, pipe: IO[bytes], num_kept: int) -> None:
        super().__init__(daemon=True)
        self._pipe, self._num_kept, self._kept = pipe, num_kept, bytearray()
        self.start()

    def run(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 65536):
                self._kept += chunk
                del self._kept[: -self._num_kept]

    def text(self) -> str:
        # Who still holds the other end is not waited for.
        self.join(2.0)
        return bytes(self._kept).decode(errors="replace")


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    limit: float,
    token: str,
    num_kept: int,
) -> Ran:
    """Run a command to its end, or kill it and all its children after `limit` seconds.

    Args:
        command: Arguments.
        environment: All of its variables; PAGEWIRE_FIRST_HOUR_TOKEN is added.
        folder: Where it runs.
        limit: Seconds.
        token: Unique to this run.
        num_kept: Bytes of output that are kept, the last ones.
    """
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        env={**environment, TOKEN_VARIABLE: token},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    tail = _Tail(process.stdout, num_kept)
    is_over_limit = False
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        is_over_limit = True
        process.send_signal(signal.SIGABRT)
        with_traceback = time.monotonic() + TRACEBACK_SECONDS
        while process.poll() is None and time.monotonic() < with_traceback:
            time.sleep(0.05)
    finally:
        _kill_group(process.pid)
        kill_all_of(token)
        code = process.wait()
    return Ran(code, is_over_limit, time.monotonic() - began, tail.text())


def kill_all_of(token: str) -> int:
    """Kill every process that has the token, and return how many there were."""
    num_killed = 0
    # Again, until none is left: one may have started another meanwhile.
    while found := list(_processes_of(token)):
        for number in found:
            try:
                os.kill(number, signal.SIGKILL)
                num_killed += 1
            except ProcessLookupError:
                continue
        time.sleep(0.05)
    return num_killed


def _processes_of(token: str) -> Iterator[int]:
    wanted = f"{TOKEN_VARIABLE}={token}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if wanted in variables and state not in "ZX":
            yield int(folder.name)


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
