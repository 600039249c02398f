"""Pods of a group of ranks as processes of this machine, with the environment of LWS."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from support.processes.processes import children_of, is_running, wait_until

END_SECONDS = 20.0


def pod_environ(index: int, size: int = 2, leader: str = "127.0.0.1") -> dict[str, str]:
    """Return the variables of one pod."""
    return {
        "LWS_LEADER_ADDRESS": leader,
        "LWS_GROUP_SIZE": str(size),
        "LWS_WORKER_INDEX": str(index),
    }


class RankPod:
    """A pod behind the first: a worker's command line in a process with the environment of LWS.

    Args:
        settings: Of the worker, by name.
        folder: Where it runs.
    """

    def __init__(
        self,
        index: int,
        settings: Mapping[str, Any],
        log: Path,
        *,
        size: int = 2,
        folder: Path | None = None,
    ) -> None:
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        self.log_file = log
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pagewire_worker", *flags],
                stdout=subprocess.DEVNULL,
                stderr=file,
                cwd=folder,
                env={**os.environ, **pod_environ(index, size)},
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """What it wrote."""
        return self.log_file.read_text()

    def ranks(self) -> Sequence[int]:
        """Return the processes of its ranks."""
        return sorted(children_of(self.pid))

    def await_no_ranks(self, seconds: float = 5.0) -> None:
        wait_until(lambda: not any(map(is_running, self.ranks())), seconds, "its ranks are gone")

    def __enter__(self) -> "RankPod":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait(END_SECONDS)
