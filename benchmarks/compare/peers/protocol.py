"""The seam between cases and servers: how one is started, asked and stopped."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from compare.work import Request, Timed

KV_BYTES = 2 << 30
MAX_STREAMS = 64
MAX_LENGTH = 4096


class NotStartedError(Exception):
    """A server is not installed or did not start; the text says why."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all servers.

    Attributes:
        model: Folder of the checkpoint.
        dtype: Type of the weights, by torch's name.
        num_threads: Threads that compute.
        logs: Folder for what servers print.
        start_seconds: How long a server may take to start.
    """

    model: Path
    dtype: str
    num_threads: int
    logs: Path
    start_seconds: float


class Running(Protocol):
    """A server that answers."""

    @property
    def pid(self) -> int:
        """The first of its processes; it leads a session."""

    def complete(self, requests: Sequence[Request], timeout_seconds: float) -> list[Timed]:
        """Send all at once. Raises RunFailedError when not all come whole and in time."""

    def stop(self) -> None:
        """End all its processes."""


class Peer(Protocol):
    """A server that can be started, again and again."""

    @property
    def label(self) -> str:
        """Its column."""

    def settings(self, setup: Setup) -> str:
        """How it is set up, for a reader."""

    def start(self, setup: Setup) -> Running:
        """Return it when it answers. Raises NotStartedError."""
