"""What TLS between the roles costs: CPU time of all roles per token.

    python benchmarks/links/tls_cost.py [--pairs 10] [--streams 16] [--tokens 128] [--unix]

Two cells of the built-in model run side by side, scheduler, a worker for prompts, one for tokens,
and a frontend each, on TCP of this machine: one with certificates and one without. They are asked
in turns. With --unix the links are Unix sockets, which have no TLS. Results are in
docs/performance.md.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pagewire.client.client import AsyncClient
from pagewire.models import BUILTIN_NAME

sys.path.append(str(Path(__file__).resolve().parents[1]))
from parts.pairs import mean_with_bound

START_SECONDS: Final = 120.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@dataclass
class Cell:
    """A running cell; `certificates` is None without TLS."""

    certificates: Path | None
    folder: Path
    is_unix: bool = False
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    scheduler: str = ""
    grpc: str = ""

    def start(self) -> None:
        self.scheduler = self._address()
        self._run("scheduler", "--listen", self.scheduler, "--handoff", "always")
        for role in ("prefill", "decode"):
            listen = self._address()
            words = ["--model", BUILTIN_NAME, "--listen", listen, "--kv-transport", "grpc"]
            self._run("worker", "--scheduler", self.scheduler, "--roles", role, *words)
        http, grpc = free_port(), free_port()
        ports = ["--port", str(http), "--grpc-port", str(grpc)]
        model = f"{BUILTIN_NAME}={BUILTIN_NAME}"
        self._run("frontend", "--scheduler", self.scheduler, "--model", model, *ports)
        self.grpc = f"127.0.0.1:{grpc}"

    def _address(self) -> str:
        if not self.is_unix:
            return f"127.0.0.1:{free_port()}"
        name = "clear" if self.certificates is None else "tls"
        return f"unix:{self.folder}/{name}-{len(self.processes)}.sock"

    def _run(self, role: str, *words: str) -> None:
        tls = []
        if self.certificates is not None:
            tls = ["--tls-dir", str(self.certificates / role)]
        command = [sys.executable, "-m", "pagewire", role, *words, *tls, "--log-level", "error"]
        self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))

    def cpu_seconds(self) -> float:
        """Return what all processes have used."""
        ticks = 0
        for process in self.processes:
            words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(words[11]) + int(words[12])
        return ticks / _TICKS

    async def ask(self, streams: int, tokens: int) -> int:
        """Return the tokens of some streams at once."""
        sampling = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0.0}

        async def one(client: AsyncClient, number: int) -> int:
            prompt = [5 + (7 * number + place) % 400 for place in range(96)]
            count = 0
            async for event in client.complete(prompt, sampling):
                count += len(getattr(event, "token_ids", ()))
            return count

        async with AsyncClient(self.grpc, timeout_seconds=START_SECONDS) as client:
            return sum(await asyncio.gather(*(one(client, number) for number in range(streams))))


@contextlib.contextmanager
def running(cells: Sequence[Cell]) -> Iterator[None]:
    try:
        for cell in cells:
            cell.start()
        for cell in cells:
            wait_ready(cell)
        yield
    finally:
        for cell in cells:
            for process in cell.processes:
                process.kill()
                process.wait()


def wait_ready(cell: Cell) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            if asyncio.run(cell.ask(1, 4)):
                return
        except Exception:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


def measured(cell: Cell, streams: int, tokens: int) -> float:
    """Return CPU seconds per token."""
    before = cell.cpu_seconds()
    count = asyncio.run(cell.ask(streams, tokens))
    return (cell.cpu_seconds() - before) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--unix", action="store_true", help="links are Unix sockets")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        certificates = Path(name) / "certs"
        made = [sys.executable, "-m", "pagewire", "certs", "init", str(certificates)]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        plain = Cell(None, Path(name), options.unix)
        secure = Cell(certificates, Path(name), options.unix)
        with running([plain, secure]):
            ratios = []
            # The first pair warms up.
            for number in range(-1, options.pairs):
                turn = [plain, secure] if number % 2 == 0 else [secure, plain]
                found = {id(c): measured(c, options.streams, options.tokens) for c in turn}
                if number >= 0:
                    ratios.append(found[id(secure)] / found[id(plain)])
                    print(f"pair {number + 1}: {ratios[-1]:.3f}", flush=True)
            mean, bound = mean_with_bound(ratios)
            print(f"CPU time per token, with TLS by without: {mean:.3f} +- {bound:.3f} (95 %)")


if __name__ == "__main__":
    main()
