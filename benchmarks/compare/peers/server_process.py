"""A process of a server: started in a session of its own with its output in a file, and ended."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from compare import process_tree
from compare.peers.protocol import NotStartedError

_TAIL_LINES = 3
_TAIL_LENGTH = 300


class ServerProcess:
    """One start of a command.

    Args:
        command: The program and its arguments.
        environment: Variables on top of this process's own.
        log: File that what it prints is added to.
        has_pipes: Whether its standard input and output are pipes of ours.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        has_pipes: bool = False,
    ) -> None:
        self.log = log
        self._begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            try:
                self._process: subprocess.Popen[bytes] = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if has_pipes else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if has_pipes else output,
                    stderr=output,
                    env={**os.environ, **environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise NotStartedError(f"{command[0]}: {error.strerror}") from error

    @property
    def pid(self) -> int:
        """Its process id; it leads a session."""
        return self._process.pid

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """Its standard input and output."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin, self._process.stdout

    def failure(self) -> str | None:
        """Return its exit status and last lines, or None while it runs."""
        status = self._process.poll()
        return None if status is None else f"ended with status {status}: {self.tail()}"

    def tail(self) -> str:
        """Return the last lines that this start printed, in one line."""
        with self.log.open("rb") as printed:
            printed.seek(self._begin)
            lines = printed.read().decode(errors="replace").split("\n")
        last = [line.strip() for line in lines if line.strip()][-_TAIL_LINES:]
        return " / ".join(last)[-_TAIL_LENGTH:]

    def stop(self) -> None:
        """End it and all that it has started."""
        process_tree.stop(self.pid)
        self._process.wait(5)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
