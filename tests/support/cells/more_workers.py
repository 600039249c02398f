"""Workers that join a deployment after it has started, each in a process of its own."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.cells.clusters import Cluster

END_SECONDS = 30.0


def scheduler_address(cluster: Cluster) -> str:
    """Address that the scheduler of `cluster` listens on."""
    arguments = cluster.local._specs["scheduler"].arguments
    return arguments[arguments.index("--listen") + 1]


class MoreWorker:
    """A worker with the flags of a cluster's first one, but for those that are given; a context
    manager that leaves nothing behind.

    Attributes:
        address: Where others pull its blocks.
        log: What it wrote to standard error.
    """

    def __init__(self, cluster: Cluster, folder: Path, **settings: str) -> None:
        self.address = f"unix:{folder / 'worker.sock'}"
        arguments = cluster.local._specs["worker-0"].arguments
        flags = dict(_flags(arguments))
        flags["--listen"] = [self.address]
        flags |= {"--" + name.replace("_", "-"): [value] for name, value in settings.items()}
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "pagewire_worker", "--exit-with-parent"),
                *(word for flag, values in flags.items() for word in (flag, *values)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()

    @property
    def log(self) -> str:
        return "".join(self._log)

    def wait_ready(self) -> None:
        """Return when it is attached; fail with its log when it ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["pagewire"] == "ready":
                return
        raise AssertionError("the worker ended: " + self.log)

    def finish(self, seconds: float = END_SECONDS) -> int:
        """Wait for its end; return the exit status."""
        status = self.process.wait(seconds)
        self._reader.join(END_SECONDS)
        return status

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self._log.extend(self.process.stderr)

    def __enter__(self) -> "MoreWorker":
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.finish()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield flags, and the value of each that has one."""
    for flag, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        if flag.startswith("--"):
            yield flag, [] if following.startswith("--") else [following]
