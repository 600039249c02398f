"""One role as a process of its own, told by hand where it listens and whom it dials."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pagewire_shared.process.allocator import with_allocator_settings
from pagewire_shared.process.status import parse_status
from support.processes.processes import wait_until

END_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process runs, from which code, and where others reach it.

    Attributes:
        address: host:port or unix:path that it listens on.
        prefix: Command that Python's command line is given to.
        program: What Python runs; None for the role as it is installed.
        environ: Environment on top of this process's.
    """

    address: str
    prefix: Sequence[str] = ()
    program: Sequence[str] | None = None
    environ: dict[str, str] = field(default_factory=dict)


class RoleProcess:
    """A role that can be killed, stopped and started again; a context manager that leaves nothing
    behind.

    Args:
        name: For messages.
        role: frontend, scheduler, worker or kvstore.
        place: Where it runs.
        flags: Of the role.
    """

    def __init__(self, name: str, role: str, place: Place, flags: Sequence[str]) -> None:
        self.name = name
        self.role = role
        self.place = place
        self.flags = tuple(flags)
        self.start()

    def start(self) -> None:
        """Start it where it does not run; `wait_ready` waits for it."""
        program = self.place.program or ("-P", "-m", f"pagewire_{self.role}")
        environ = with_allocator_settings(os.environ, self.role) | self.place.environ
        self._statuses: list[dict[str, Any]] = []
        self._log: list[str] = []
        self.process = subprocess.Popen(
            [*self.place.prefix, sys.executable, *program, *self.flags, "--exit-with-parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",
            env=environ,
        )
        self._readers = [
            threading.Thread(target=reader, daemon=True)
            for reader in (self._read_statuses, self._read_log)
        ]
        for reader in self._readers:
            reader.start()

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    @property
    def log(self) -> str:
        """What it wrote to standard error since it was started."""
        return "".join(self._log)

    @property
    def statuses(self) -> list[dict[str, Any]]:
        """What it has reported since it was started, in order."""
        return list(self._statuses)

    @property
    def is_ready(self) -> bool:
        """Whether it said so since it was started."""
        return any(status["event"] == "ready" for status in self._statuses)

    def wait_ready(self, seconds: float) -> None:
        """Wait until it is ready; fail with what it wrote when it ends or `seconds` pass."""

        def is_decided() -> bool:
            return self.is_ready or self.process.poll() is not None

        try:
            wait_until(is_decided, seconds, f"{self.name} is ready")
        except AssertionError as error:
            error.add_note(self.log)
            raise
        assert self.is_ready, f"{self.name} ended: {self.log}"

    def wait_end(self, seconds: float) -> int:
        """Wait until it has ended of itself; return its exit status."""
        status = self.process.wait(seconds)
        self._close()
        return status

    def stop(self) -> None:
        """SIGSTOP: it is there and answers nothing."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self) -> int:
        """SIGTERM; wait for the end and return the exit status."""
        self.process.terminate()
        return self.wait_end(END_SECONDS)

    def kill(self) -> None:
        """kill -9 whatever still runs, and wait for the end."""
        self.process.kill()
        self.wait_end(END_SECONDS)

    def _read_statuses(self) -> None:
        stream, statuses, log = self.process.stdout, self._statuses, self._log
        assert stream is not None
        for line in stream:
            status = parse_status(line)
            if status is None:
                log.append(line)
            else:
                statuses.append(status)

    def _read_log(self) -> None:
        stream, log = self.process.stderr, self._log
        assert stream is not None
        log.extend(stream)

    def _close(self) -> None:
        for reader in self._readers:
            reader.join(END_SECONDS)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def __enter__(self) -> "RoleProcess":
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
