"""What a request with a costly grammar costs another tenant: seconds of small completions of tenant
B alone, and beside one request of tenant A with 64 choices, without a grammar and with several.

    python benchmarks/grammar_neighbour.py [--rounds 5] [--requests 8]

All cases take turns in each round, so that a busy machine disturbs all of them. Results are in
docs/performance.md.
"""

import argparse
import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway import free_port, wait_port, wait_ready

HIDDEN = """
start: /[aeiou]/ a | /[b-df-hj-np-tv-z]/ /[a-z]+/ | /[A-Z0-9]/ /0+/
a: a a a | a a | "a" | "b"
"""
"""The check does not find how ambiguous it is behind a vowel."""

CASES: dict[str, dict[str, Any] | None] = {
    "alone": None,
    "no grammar": {},
    "cheap grammar": {"grammar": 'start: ("a" | "b")+'},
    "ambiguous grammar": {"grammar": HIDDEN},
}
_TICKS = os.sysconf("SC_CLK_TCK")


class Server:
    """A `pagewire serve` with the keys of two tenants."""

    def __init__(self, folder: Path) -> None:
        keys = folder / "keys"
        keys.write_text("a=key-a\nb=key-b\n")
        keys.chmod(0o600)
        self.port = free_port()
        command = [sys.executable, "-m", "pagewire", "serve", "--port", str(self.port)]
        command += ["--grpc-port", str(free_port()), "--api-key-file", str(keys)]
        command += ["--kv-offload", "off", "--log-level", "warning"]
        self.process = subprocess.Popen(command)
        wait_port(self.port)
        wait_ready(self.port)

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def nice_seconds(self) -> float:
        """Return the CPU time that threads of low priority have taken."""
        total = 0.0
        for stat in self._threads():
            fields = stat.rsplit(")", 1)[1].split()
            if int(fields[16]) > 0:
                total += (int(fields[11]) + int(fields[12])) / _TICKS
        return total

    def _threads(self) -> Iterator[str]:
        """Yield what the kernel says of each thread of the processes below this one."""
        for child in _below(self.process.pid):
            for stat in Path(f"/proc/{child}/task").glob("*/stat"):
                with contextlib.suppress(OSError):
                    yield stat.read_text()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def post(
    connection: http.client.HTTPConnection, key: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    """Return the status and the answer."""
    head = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body), head)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


class Neighbour(threading.Thread):
    """Tenant A: asks the same again whenever an answer has come, and leaves in the end."""

    def __init__(self, server: Server, outputs: dict[str, Any], num_choices: int) -> None:
        super().__init__(daemon=True)
        self._connection = server.connect()
        self._body = {
            "model": "pagewire-builtin",
            "prompt": "Once upon a time",
            "n": num_choices,
            "max_tokens": 180,
            "ignore_eos": True,
            "temperature": 1,
        }
        if outputs:
            self._body["structured_outputs"] = outputs
        self._is_over = False
        self.ends: list[str] = []

    def run(self) -> None:
        while not self._is_over:
            began = time.monotonic()
            try:
                status, answer = post(self._connection, "key-a", self._body)
            except (OSError, http.client.HTTPException):
                if not self._is_over:
                    raise
                return
            text = str(status) if status == 200 else f"{status} {answer['error']['message']}"
            self.ends.append(f"{text} after {time.monotonic() - began:.1f} s")
            if status != 200:
                time.sleep(0.2)

    def leave(self) -> None:
        self._is_over = True
        with contextlib.suppress(OSError, AttributeError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self.join()


def _below(pid: int) -> list[int]:
    """Return a process and those that it has started."""
    found = [pid]
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=8, help="of B, per case and round")
    parser.add_argument("--choices", type=int, default=64)
    parser.add_argument("--lead", type=float, default=3.0, help="seconds that A is ahead of B")
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES))
    arguments = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in arguments.cases}
    shares: dict[str, list[float]] = {name: [] for name in arguments.cases}
    ends: dict[str, list[str]] = {name: [] for name in arguments.cases}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder))
        try:
            small(server)
            for _ in range(arguments.rounds):
                for name in arguments.cases:
                    run_case(server, arguments, name, taken, shares, ends)
        finally:
            server.stop()
    first = statistics.median(next(iter(taken.values())))
    print("| beside | median, ms | ratio | slowest, ms | CPU of low priority, of a core |")
    print("| --- | --- | --- | --- | --- |")
    for name, seconds in taken.items():
        middle = statistics.median(seconds)
        share = statistics.mean(shares[name])
        print(
            f"| {name} | {middle * 1e3:.0f} | {middle / first:.2f} | {max(seconds) * 1e3:.0f} "
            f"| {share:.2f} |"
        )
    for name, texts in ends.items():
        print(f"{name}: {texts[:3]}")


def run_case(
    server: Server,
    arguments: argparse.Namespace,
    name: str,
    taken: dict[str, list[float]],
    shares: dict[str, list[float]],
    ends: dict[str, list[str]],
) -> None:
    outputs, neighbour = CASES[name], None
    if outputs is not None:
        neighbour = Neighbour(server, outputs, arguments.choices)
        neighbour.start()
        time.sleep(arguments.lead)
    began, used = time.monotonic(), server.nice_seconds()
    for _ in range(arguments.requests):
        taken[name].append(small(server))
    print(name, [round(1e3 * one) for one in taken[name][-arguments.requests :]], flush=True)
    shares[name].append((server.nice_seconds() - used) / (time.monotonic() - began))
    if neighbour is not None:
        neighbour.leave()
        ends[name].extend(neighbour.ends)


def small(server: Server) -> float:
    """Return the seconds of a small completion of tenant B."""
    body = {"model": "pagewire-builtin", "prompt": "The cat", "max_tokens": 8, "ignore_eos": True}
    began = time.monotonic()
    connection = server.connect()
    status, answer = post(connection, "key-b", body)
    connection.close()
    assert status == 200, answer
    return time.monotonic() - began


if __name__ == "__main__":
    main()
