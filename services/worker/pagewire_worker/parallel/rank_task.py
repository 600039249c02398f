"""The task of a rank's process, and its tie to rank 0. Imports no torch: the tie comes first."""

import ctypes
import dataclasses
import json
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any, Final

from pagewire_worker.config import WorkerConfig

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTask:
    """The task of the process of a rank, as JSON in a line of its standard input."""

    config: WorkerConfig
    rank: int
    size: int
    fd: int
    slot_bytes: int
    parent: int

    def encode(self) -> bytes:
        """Return the line."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "RankTask":
        """Return the task of a line that `encode` made."""
        content: dict[str, Any] = json.loads(line)
        settings: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in content.pop("config").items()
        }
        return cls(config=WorkerConfig(**settings), **content)


def die_with(parent: int) -> None:
    """Let the system kill this process with the thread that started it; exit if it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)
