"""Frontends as processes of their own, one group before one scripted scheduler."""

import asyncio
import json
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx
from contract.frontend_peers import (
    SILENCE_SECONDS,
    WAIT_SECONDS,
    Attach,
    ScriptedScheduler,
    listening,
    served,
)
from prometheus_client.parser import text_string_to_metric_families

from pagewire.local.port_reservation import PortReservation

HOST = "127.0.0.1"
START_SECONDS = 30.0
"""Patience with a process that starts."""


@dataclass
class FrontendProcess:
    """One process."""

    name: str
    command: list[str]
    process: subprocess.Popen = field(init=False)

    async def start(self) -> dict[str, object]:
        """Start it; return what it says about its listeners, once it could answer."""
        self.process = await asyncio.to_thread(
            subprocess.Popen,
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        listens = await self._next()
        while (await self._next())["pagewire"] != "ready":
            continue
        return listens

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            pipe.close()

    async def _next(self):
        line = await asyncio.wait_for(
            asyncio.to_thread(self.process.stdout.readline), START_SECONDS
        )
        return json.loads(line)


@dataclass
class ProcessGroup:
    """Two or more processes on one port."""

    port: int
    grpc_port: int
    frontends: list[FrontendProcess]
    scheduler: ScriptedScheduler

    @property
    def http_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    async def attached(self) -> Attach:
        """Return the stream of the next process that attaches to the scheduler."""
        return await asyncio.wait_for(self.scheduler.attaches.get(), START_SECONDS)

    async def metrics(self) -> dict[tuple[str, ...], float]:
        """Return the metrics of the group, asked over a connection of its own."""
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as client:
            answer = await client.get(f"{self.http_url}/metrics")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return samples(answer.text)


def samples(exposition: str) -> dict[tuple[str, ...], float]:
    """Return name and values of the labels, in the order of their names, to the value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition)
        for sample in family.samples
    }


@asynccontextmanager
async def process_group(checkpoint, folder, names=("a", "b"), *flags):
    """Yield a running group; its processes do not outlive the block."""
    scheduler = ScriptedScheduler(served(checkpoint))
    with ExitStack() as ends:
        http, grpc = (PortReservation(HOST, 0, setting="--port") for _ in range(2))
        ends.callback(http.close)
        ends.callback(grpc.close)
        async with listening(scheduler) as scheduler_port:
            frontends = []
            for name in names:
                command = [sys.executable, "-m", "pagewire_frontend", "--exit-with-parent"]
                command += ["--scheduler", f"{HOST}:{scheduler_port}", "--shared-ports"]
                command += ["--port", str(http.port), "--grpc-port", str(grpc.port)]
                command += ["--model", f"tiny={checkpoint}", "--log-level", "warning"]
                command += ["--silence-seconds", str(SILENCE_SECONDS)]
                command += ["--frontend-name", name, "--peer-listen", f"unix:{folder}/{name}.sock"]
                for peer in names:
                    if peer != name:
                        command += ["--peer", f"{peer}=unix:{folder}/{peer}.sock"]
                frontends.append(FrontendProcess(name, [*command, *flags]))
            try:
                await asyncio.gather(*(frontend.start() for frontend in frontends))
                yield ProcessGroup(http.port, grpc.port, frontends, scheduler)
            finally:
                for frontend in frontends:
                    frontend.kill()
