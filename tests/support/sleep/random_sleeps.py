"""Random sleeps, wakes and kills of a running cell, while requests stream.

    cd tests && python -m support.sleep.random_sleeps --rounds 200
    cd tests && python -m support.sleep.random_sleeps --rounds 50 --ranks 2 --stages 2

Every stream must end with the tokens of an undisturbed run, and at the end an audit must be clean.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc.aio

from pagewire.client.sleep_client import sleep, wake_up
from pagewire.client.topology_client import topology
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from pagewire_shared.errors import PagewireError
from pagewire_shared.sleep.state import MemoryTag, SleepMode
from support.cells.clusters import Cluster, start_cluster
from support.checkpoints.checkpoints import make_checkpoint
from support.processes.processes import children_of
from support.traffic.streams import Stream, completion, eventually_clean, follow_all

NUM_WORKERS = 2
NUM_STREAMS = 6
NUM_TOKENS = 60
ROUND_SECONDS = 60.0
"""Most time of a round, for each process of a worker: one that is killed starts all of them."""
KINDS = (*("sleep",) * 5, *("wake",) * 5, "weights", "kill worker", "kill scheduler", "pause")


@dataclass
class Sleeper:
    """A cell under random orders.

    Attributes:
        counts: What happened, by kind.
        refused: Orders that ended with an error, by its text.
    """

    cluster: Cluster
    dice: random.Random
    kinds: Sequence[str] = KINDS
    num_ranks: int = 1
    counts: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    async def act(self) -> None:
        """Let one thing happen."""
        kind = self.dice.choice(self.kinds)
        self.counts[kind] += 1
        address = self.cluster.grpc_address
        try:
            if kind == "sleep":
                mode = self.dice.choice(list(SleepMode))
                seconds = self.dice.choice([0.05, 5.0])
                worker = await self._some_worker()
                level = self.dice.choice([1, 2])
                await sleep(address, level=level, mode=mode, worker=worker, timeout_seconds=seconds)
            elif kind == "wake":
                await wake_up(address, worker=await self._some_worker(), timeout_seconds=10.0)
            elif kind == "weights":
                await wake_up(address, tags=[MemoryTag.WEIGHTS], timeout_seconds=10.0)
            elif kind.startswith("kill"):
                pids = self._processes(kind.removeprefix("kill "))
                if pids:
                    os.kill(self.dice.choice(pids), signal.SIGKILL)
            else:
                await asyncio.sleep(self.dice.random() * 0.3)
        except PagewireError as error:
            self.refused[f"{kind}: {type(error).__name__}"] += 1

    def _processes(self, kind: str) -> list[int]:
        """The processes of a role, or the ranks behind the first of all workers."""
        if kind != "rank":
            return self.cluster.processes[kind]
        return [pid for worker in self.cluster.processes["worker"] for pid in children_of(worker)]

    async def _some_worker(self) -> str | None:
        """The id of one worker, or None for all."""
        cells = await topology(self.cluster.grpc_address)
        workers = [worker.worker for cell in cells for worker in cell.workers]
        return self.dice.choice([*workers, None]) if workers else None

    async def wake_everybody(self) -> None:
        """Wake all workers until all are awake."""
        while True:
            try:
                woken = await wake_up(self.cluster.grpc_address, timeout_seconds=20.0)
            except PagewireError:
                await asyncio.sleep(0.1)
                continue
            if len(woken) == NUM_WORKERS and all(one.memory == "awake" for one in woken):
                return
            await asyncio.sleep(0.1)

    async def round(self, requests: Sequence[inference_pb2.CompleteRequest]) -> list[Stream]:
        """Follow all requests under some orders; all workers are awake at the end."""
        async with grpc.aio.insecure_channel(self.cluster.grpc_address) as channel:
            stub = inference_pb2_grpc.InferenceServiceStub(channel)
            streams = [Stream(request) for request in requests]
            followers = [asyncio.create_task(stream.follow(stub)) for stream in streams]
            for _ in range(self.dice.randrange(1, 5)):
                await asyncio.sleep(self.dice.random() * 0.2)
                await self.act()
            async with asyncio.timeout(ROUND_SECONDS * self.num_ranks):
                await self.wake_everybody()
                await asyncio.gather(*followers)
        return streams


def requests_of(model: str, dice: random.Random) -> list[inference_pb2.CompleteRequest]:
    """Half greedy, half sampled with a seed."""
    result = []
    for index in range(NUM_STREAMS):
        prompt = [dice.randrange(3, 512) for _ in range(dice.randrange(5, 100))]
        sampling = {} if index % 2 else {"temperature": 1.0, "seed": index}
        result.append(completion(model, prompt, NUM_TOKENS, **sampling))
    return result


async def run_rounds(
    cluster: Cluster, num_rounds: int, seed: int, *, num_ranks: int = 1
) -> Sleeper:
    """Raise AssertionError if a stream differs from the undisturbed run or the audit has findings.

    Requests may fail where their worker was lost five times, which no round here reaches.
    """
    kinds = (*KINDS, "kill rank") if num_ranks > 1 else KINDS
    sleeper = Sleeper(cluster, random.Random(seed), kinds, num_ranks)
    requests = requests_of(cluster.model, random.Random(seed + 1))
    expected = [s.token_ids for s in await follow_all(cluster.grpc_address, requests)]
    assert all(len(tokens) == NUM_TOKENS for tokens in expected)
    for number in range(num_rounds):
        streams = await sleeper.round(requests)
        for index, (stream, tokens) in enumerate(zip(streams, expected, strict=True)):
            assert stream.error == "", f"round {number}, stream {index}: {stream.error}"
            assert stream.token_ids == tokens, f"round {number}, stream {index} differs"
    await eventually_clean(cluster.grpc_address, NUM_WORKERS, timeout_seconds=30)
    return sleeper


def start(folder: Path, **settings: object) -> Cluster:
    """Start a cell whose workers sleep."""
    checkpoint = make_checkpoint(folder / "model", hidden=128, layers=2)
    return start_cluster(
        checkpoint, num_workers=NUM_WORKERS, enable_sleep_mode=True, max_model_len=256, **settings
    )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1, help="of each stage of each worker")
    parser.add_argument("--stages", type=int, default=1)
    options = parser.parse_args()
    sizes = options.ranks, options.stages
    with tempfile.TemporaryDirectory() as folder:
        cluster = start(
            Path(folder), tensor_parallel_size=sizes[0], pipeline_parallel_size=sizes[1]
        )
        began = time.monotonic()
        try:
            running = run_rounds(
                cluster, options.rounds, options.seed, num_ranks=sizes[0] * sizes[1]
            )
            sleeper = asyncio.run(running)
        finally:
            cluster.local.stop()
    print(f"{options.rounds} rounds in {time.monotonic() - began:.0f} s: {dict(sleeper.counts)}")
    print(f"orders that ended with an error: {dict(sleeper.refused)}")
    print("every stream had the tokens of the undisturbed run; the audit is clean")
    return 0


if __name__ == "__main__":
    sys.exit(main())
