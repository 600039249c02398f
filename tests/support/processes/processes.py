"""Processes of the system under test: found by their parent, awaited, ended."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Value = TypeVar("Value")


def children_of(pid: int) -> list[int]:
    """Process ids whose parent is `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and parent_of(int(entry.name)) == pid:
            found.append(int(entry.name))
    return found


def parent_of(pid: int) -> int | None:
    """Parent of a process; None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(stat.rpartition(")")[2].split()[1])


def is_running(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_until(condition: Callable[[], Value], seconds: float, what: str) -> Value:
    """Return the first true value of `condition`, asked again and again; fail after `seconds`."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)
    return value


def free_port() -> int:
    """A port that nothing listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that nothing listens on at the moment; below those that
    the system hands out, so that nobody is given one a moment later."""
    # Processes that run tests side by side have numbers in a row: their ports begin far apart.
    for first in range(10_000 + 97 * os.getpid() % 10_000, 32_000 - count, count):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError(f"no {count} ports in a row are free")


class Serve:
    """A `pagewire serve` in a process of its own; a context manager that leaves nothing behind."""

    def __init__(self, *flags: str, environ: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pagewire", "serve", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environ or {})},
        )
        self.error = ""

    def wait_ready(self) -> str:
        """Return the two lines that are printed when it is ready."""
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if not first:
            self.finish(20)
            raise AssertionError(f"serve ended: {self.error}")
        return first + self.process.stdout.readline()

    def finish(self, seconds: float) -> int:
        """Wait for the end; return the exit status."""
        _, self.error = self.process.communicate(timeout=seconds)
        return self.process.returncode

    def __enter__(self) -> "Serve":
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=20)
