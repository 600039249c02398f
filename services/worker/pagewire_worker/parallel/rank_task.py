"""The task of a rank's process, and its tie to rank 0. Imports no torch: the tie comes first."""

import ctypes
import dataclasses
import faulthandler
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pagewire_worker.config import WorkerConfig

_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class HostLink:
    """A connected socket `fd` of a rank to another host, which has `size` ranks from `first` on;
    its other end is that of the rank `peer`."""

    fd: int
    first: int
    size: int
    peer: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTask:
    """The task of the process of a rank, as JSON in a line of its standard input.

    Attributes:
        fd: Of the memory that the ranks of a host share.
        link: Of its end of the socket for requests beside steps.
        parent: Process that started it.
        host: Host of the rank; rank 0, the worker, is on host 0.
        host_links: To the other hosts.
    """

    config: WorkerConfig
    rank: int
    fd: int
    link: int
    slot_bytes: int
    stacks_fd: int
    parent: int
    host: int = 0
    host_links: tuple[HostLink, ...] = ()

    def encode(self) -> bytes:
        """Return the line."""
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "RankTask":
        """Return the task of a line that `encode` made."""
        content: dict[str, Any] = json.loads(line)
        config = decode_config(content.pop("config"))
        links = tuple(HostLink(**link) for link in content.pop("host_links"))
        return cls(config=config, host_links=links, **content)


def decode_config(content: Mapping[str, Any]) -> WorkerConfig:
    """Return the settings of their fields as values of JSON. Raises StartupError or TypeError."""
    settings: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return WorkerConfig(**settings)


def die_with(parent: int) -> None:
    """Let the system kill this process with the thread that started it; exit if it is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def show_stacks(fd: int) -> None:
    """Let SIGUSR2 write the stacks of all threads to a file, whatever this process is doing."""
    faulthandler.register(signal.SIGUSR2, file=fd, all_threads=True)
