"""The metrics port of a real process under clients that mean no good: it is reached where it should
be, holds few connections, waits for nobody for long, and says nothing about who breaks off."""

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from support.processes.processes import free_port, wait_until

NUM_HALF_REQUESTS = 120
HALF = b"GET /metrics HTTP/1.1\r\nHost: x\r\n"


@dataclass
class Role:
    """A scheduler's process and its metrics port."""

    process: "subprocess.Popen[bytes]"
    port: int
    log: Path

    def connect(self, host: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((host, self.port), timeout=10)

    def scrape(self) -> httpx.Response | None:
        """The page, or None when there is no answer."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10)
        except httpx.TransportError:
            return None

    def is_scraped(self) -> bool:
        answer = self.scrape()
        return answer is not None and answer.status_code == 200

    @property
    def num_threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    @property
    def num_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))


@pytest.fixture(scope="module")
def role(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    folder = tmp_path_factory.mktemp("metrics")
    port, log = free_port(), folder / "log"
    flags = [f"--listen=unix:{folder}/scheduler", f"--metrics-port={port}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "pagewire_scheduler", *flags], stdout=output, stderr=output
        )
        try:
            role = Role(process, port, log)
            wait_until(role.is_scraped, 30, "metrics")
            wait_until(lambda: b"ready" in log.read_bytes(), 30, "a scheduler")
            yield role
        finally:
            process.kill()
            process.wait()


def test_it_listens_where_the_role_does(role: Role) -> None:
    with pytest.raises(ConnectionRefusedError):
        role.connect("127.0.0.2")


def test_half_requests_take_little_and_end(role: Role) -> None:
    threads, files = role.num_threads, role.num_files
    with ExitStack() as stack:
        halves = [stack.enter_context(role.connect()) for _ in range(NUM_HALF_REQUESTS)]
        for half in halves:
            try:
                half.sendall(HALF)
            except OSError:
                continue  # one too many: it was closed
        assert role.num_threads <= threads + 1
        # Refused connections are closed as soon as a busy machine gets to it.
        wait_until(lambda: role.num_files <= files + 40, 5, "few open connections")
        # All of them are still held here: the port answers again when their time is up.
        wait_until(role.is_scraped, 40, "metrics beside half requests")
    assert b"Traceback" not in role.log.read_bytes()


def test_who_breaks_off_leaves_no_trace(role: Role) -> None:
    for _ in range(20):
        with role.connect() as client:
            client.sendall(HALF + b"\r\n")
            # Closing sends a reset, with the answer on its way.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_until(role.is_scraped, 20, "metrics")
    assert b"Traceback" not in role.log.read_bytes()
    assert b"Exception" not in role.log.read_bytes()


def test_it_answers_one_question_only(role: Role) -> None:
    url = f"http://127.0.0.1:{role.port}"
    assert httpx.post(url + "/metrics", content=b"x" * 100, timeout=10).status_code == 405
    assert httpx.get(url + "/elsewhere", timeout=10).status_code == 404
    named = httpx.get(url + "/metrics?name[]=pagewire_build_info", timeout=10)
    assert "pagewire_build_info" in named.text
    assert "process_cpu_seconds_total" not in named.text
    assert httpx.get(url + "/metrics", timeout=10).headers["content-encoding"] == "gzip"
    for bad in (b"nonsense\r\n\r\n", b"\x16\x03\x01\xff\r\n\r\n", b"GET /" + b"x" * 20_000):
        with role.connect() as client:
            client.sendall(bad)
            assert client.recv(100).startswith(b"HTTP/1.1 4")
    assert role.is_scraped()
