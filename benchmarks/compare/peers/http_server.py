"""A server with OpenAI's HTTP API: started on a free port, ready when it says so, asked by name."""

import http.client
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compare.peers.protocol import NotStartedError
from compare.peers.server_process import ServerProcess
from compare.streams import complete
from compare.work import Request, Timed

HOST = "127.0.0.1"
MODEL = "compared"
_POLL_SECONDS = 0.02


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class HttpServer:
    """A server that answers.

    Attributes:
        process: Its first process.
        port: Where it listens.
    """

    process: ServerProcess
    port: int

    @property
    def pid(self) -> int:
        """The first of its processes."""
        return self.process.pid

    def complete(self, requests: Sequence[Request], timeout_seconds: float) -> list[Timed]:
        """Send all at once. Raises RunFailedError."""
        return complete((HOST, self.port), MODEL, requests, timeout_seconds)

    def stop(self) -> None:
        """End all its processes."""
        self.process.stop()


def start(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    port: int,
    log: Path,
    start_seconds: float,
) -> HttpServer:
    """Start a command and wait until GET /health is answered with 200.

    Raises:
        NotStartedError: It ended, or that took too long.
    """
    process = ServerProcess(command, environment, log)
    deadline = time.monotonic() + start_seconds
    try:
        while not _is_ready(port):
            if failure := process.failure():
                raise NotStartedError(failure)
            if time.monotonic() > deadline:
                raise NotStartedError(f"not ready after {start_seconds:.0f} s: {process.tail()}")
            time.sleep(_POLL_SECONDS)
    except BaseException:
        process.stop()
        raise
    return HttpServer(process, port)


def _is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
