"""Serves under load and kills of processes, and reports how memory, files, threads and latency of
each process change.

    cd tests && python -m soak --minutes 120 --fault-seconds 120

Exit status 1: an answer was wrong or failed, or a process that lived for ten minutes grew by more
than --max-growth.
"""

import argparse
import asyncio
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from pagewire import AsyncClient
from soak.samples import MIB, Sample, growth_per_hour, read_sample, shared_bytes, slope
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.steady_load import SteadyLoad, Tally

KILLED: Final = ("worker", "kvstore", "scheduler")
"""Roles whose end no client notices but by time."""
SAMPLE_SECONDS: Final = 2.0
JUDGED_SECONDS: Final = 600.0
PROMPT: Final = list(range(3, 40))


class Soak:
    """One run."""

    def __init__(self, cluster: Cluster, given: argparse.Namespace) -> None:
        self._cluster = cluster
        self._given = given
        self._began = time.monotonic()
        self.samples: dict[tuple[str, int], list[Sample]] = defaultdict(list)
        self.shared: list[tuple[float, float]] = []
        self.latencies: list[tuple[float, float]] = []
        self.num_kills = 0
        self.tally = Tally()

    async def run(self) -> None:
        """Serve, sample and kill until the time is over."""
        until = asyncio.Event()
        load = SteadyLoad(
            self._cluster.http_url, self._cluster.grpc_address, self._cluster.model, 16
        )
        jobs = [
            asyncio.create_task(job)
            for job in (
                load.run(until, self._given.clients, self.tally),
                self._sample(until),
                self._probe(until),
                self._kill(until),
            )
        ]
        await asyncio.sleep(self._given.minutes * 60.0)
        until.set()
        await asyncio.gather(*jobs)

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _sample(self, until: asyncio.Event) -> None:
        while not until.is_set():
            for role, pids in self._cluster.processes.items():
                for pid in pids:
                    found = await asyncio.to_thread(read_sample, pid, self._now())
                    if found is not None:
                        self.samples[role, pid].append(found)
            self.shared.append((self._now(), shared_bytes() / MIB))
            await asyncio.sleep(SAMPLE_SECONDS)

    async def _probe(self, until: asyncio.Event) -> None:
        """Measure the time of one token, once a second."""
        async with AsyncClient(self._cluster.grpc_address, timeout_seconds=60.0) as client:
            while not until.is_set():
                began = time.perf_counter()
                async for _ in client.complete(PROMPT, {"max_tokens": 1, "ignore_eos": True}):
                    pass
                self.latencies.append((self._now(), time.perf_counter() - began))
                await asyncio.sleep(1.0)

    async def _kill(self, until: asyncio.Event) -> None:
        dice = random.Random(self._given.seed)
        while self._given.fault_seconds:
            try:
                await asyncio.wait_for(until.wait(), self._given.fault_seconds)
            except TimeoutError:
                pids = self._cluster.processes.get(dice.choice(KILLED), [])
                if pids:
                    os.kill(dice.choice(pids), signal.SIGKILL)
                    self.num_kills += 1
                continue
            return

    def report(self) -> list[str]:
        """Print the report, and return what was wrong."""
        wrong = list(self.tally.faults[:10])
        print("| process | seconds | memory, MiB | MiB/h | files | files/h | threads | threads/h |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for (role, pid), samples in sorted(self.samples.items()):
            first, last = samples[0], samples[-1]
            seconds = last.at - first.at
            memory, files, threads = growth_per_hour(samples)
            print(
                f"| {role} {pid} | {seconds:.0f} | {first.memory / MIB:.0f} to"
                f" {last.memory / MIB:.0f} | {memory:+.1f} | {last.files} | {files:+.1f} |"
                f" {last.threads} | {threads:+.1f} |"
            )
            if seconds >= JUDGED_SECONDS and memory > self._given.max_growth:
                wrong.append(f"{role} {pid} grows by {memory:.0f} MiB an hour")
        print(f"/dev/shm: {self.shared[-1][1]:.0f} MiB, {slope(self.shared) * 3600:+.1f} MiB/h")
        quarter = max(1, len(self.latencies) // 4)
        seconds = [one for _, one in self.latencies]
        early, late = statistics.median(seconds[:quarter]), statistics.median(seconds[-quarter:])
        print(f"one token: p50 {early:.3f} s in the first quarter, {late:.3f} s in the last")
        answers = sum(self.tally.answers.values())
        print(f"{answers} right answers, {len(self.tally.faults)} faults, {self.num_kills} kills")
        return wrong


def main() -> int:
    """Run, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(description="Load and faults for hours")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--fault-seconds", type=float, default=120.0, help="between kills; 0: none")
    parser.add_argument("--clients", type=int, default=2, help="of each way of asking")
    parser.add_argument("--max-growth", type=float, default=32.0, help="MiB an hour")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder) / "model", architecture="Qwen3ForCausalLM")
        cluster = start_cluster(checkpoint, num_workers=2)
        try:
            soak = Soak(cluster, given)
            asyncio.run(soak.run())
        finally:
            cluster.local.stop()
        wrong = soak.report()
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
