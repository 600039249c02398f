"""Kills and stops workers in the middle of transfers by NIXL or Mooncake's transfer engine.

    cd tests && python -m integration.ecosystem.kills --engine nixl --kills 200 [--cell]

A process lends memory with a pattern that names it and every place. It is killed, or stopped for
longer than a read may take, while others read: what a read returns has to be what that process has
there. With --cell the same happens to the workers of a whole cell, whose answers have to be those
of one worker, and whose books have to be in order. Exit status 1: something differed.
"""

import argparse
import asyncio
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from pagewire_shared.errors import PagewireError
from pagewire_worker.transfer_engines.engine import LentMemory
from pagewire_worker.transfer_engines.making import engine_of
from pagewire_worker.transfer_engines.remote_memory import BUFFER_BYTES, EngineReads, RemoteMemory
from support.cells.clusters import Cluster, start_cluster
from support.cells.kv_cells import ask_all, prompt_of
from support.cells.worker_flags import with_worker_flags
from support.checkpoints.checkpoints import make_checkpoint
from support.traffic.streams import eventually_clean

LENT_BYTES: Final = 32 << 20
WORD: Final = 8
NUM_READERS: Final = 6
PATIENCE_SECONDS: Final = 60.0
LINK: Final = "127.0.0.1:0"


def pattern(owner: int, offset: int, num_bytes: int) -> Any:
    """Return what a process with the number `owner` has at `offset`, both in whole words."""
    places = np.arange(offset // WORD, (offset + num_bytes) // WORD, dtype=np.int64)
    return (places | (owner << 40)).view(np.uint8)


def lend(engine: str, owner: int, link: Any) -> None:
    """Lend memory until killed; the process of a holder."""
    made = engine_of(engine, LINK, is_insecure=True)
    assert made is not None
    memory = torch.from_numpy(pattern(owner, 0, LENT_BYTES).copy())
    there = made.lend(memory)
    link.send((there.description, there.address))
    signal.pause()


class Holder:
    """A process that lends memory."""

    def __init__(self, engine: str, owner: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.owner = owner
        self._link, other = context.Pipe()
        self.process = context.Process(target=lend, args=(engine, owner, other), daemon=True)
        self.process.start()

    def there(self, engine: Any) -> LentMemory:
        """Wait until it lends."""
        assert self._link.poll(PATIENCE_SECONDS), "the holder does not start"
        description, address = self._link.recv()
        return LentMemory(engine.transport, description, address, LENT_BYTES)

    def end(self) -> None:
        """End it, if it has not."""
        self.process.kill()
        self.process.join()


async def read_on(
    memory: RemoteMemory, owner: int, dice: random.Random, seen: Counter[str]
) -> None:
    """Read until a read fails."""
    while True:
        num_bytes = WORD * dice.randrange(1, 2 * BUFFER_BYTES // WORD)
        offset = WORD * dice.randrange((LENT_BYTES - num_bytes) // WORD)
        try:
            found = await memory.read(offset, num_bytes)
        except PagewireError:
            seen["failed reads"] += 1
            return
        is_right = np.array_equal(found, pattern(owner, offset, num_bytes))
        seen["right reads" if is_right else "WRONG reads"] += 1


async def disturb_memory(engine_name: str, kills: int, seed: int) -> Counter[str]:
    """Kill holders while their memory is read; return what was seen."""
    dice, seen = random.Random(seed), Counter[str]()
    engine = engine_of(engine_name, LINK, is_insecure=True)
    assert engine is not None
    reads = EngineReads(engine)
    spare = Holder(engine_name, 1)
    for number in range(1, kills + 1):
        holder, spare = spare, Holder(engine_name, number + 1)
        memory = await reads.open(await asyncio.to_thread(holder.there, engine))
        readers = [
            asyncio.create_task(read_on(memory, holder.owner, dice, seen))
            for _ in range(NUM_READERS)
        ]
        await asyncio.sleep(dice.uniform(0.001, 0.1))
        if number % 10 == 0:
            # It goes on where it was, after its reader has perhaps given it up.
            os.kill(holder.process.pid or 0, signal.SIGSTOP)
            await asyncio.sleep(dice.uniform(0.1, 0.5))
            os.kill(holder.process.pid or 0, signal.SIGCONT)
            await asyncio.sleep(dice.uniform(0.0, 0.1))
            seen["stops"] += 1
        holder.end()
        seen["kills"] += 1
        _, late = await asyncio.wait(readers, timeout=PATIENCE_SECONDS)
        seen["HUNG reads"] += len(late)
        memory.close()
    spare.end()
    return seen


async def disturb_cell(cluster: Cluster, kills: int, seed: int) -> Counter[str]:
    """Kill workers while prompts are handed off; return what was seen."""
    dice, seen = random.Random(seed), Counter[str]()
    prompts = [prompt_of(number, 300) for number in range(8)]
    expected = [one.token_ids for one in await ask_all(cluster, prompts)]
    while seen["kills"] < kills:
        fresh = [prompt_of(1000 + 8 * seen["kills"] + number, 300) for number in range(8)]
        asked = asyncio.create_task(ask_all(cluster, [*prompts, *fresh]))
        while not asked.done() and seen["kills"] < kills:
            await asyncio.sleep(dice.uniform(0.01, 0.3))
            if pids := cluster.processes["worker"]:
                number = signal.SIGSTOP if dice.random() < 0.1 else signal.SIGKILL
                os.kill(dice.choice(pids), number)
                seen["kills"] += 1
                await asyncio.sleep(dice.uniform(2.0, 4.0))
        for answer, wanted in zip(await asked, expected, strict=False):
            seen["right answers" if answer.token_ids == wanted else "WRONG answers"] += 1
    await eventually_clean(cluster.grpc_address, 4, PATIENCE_SECONDS)
    return seen


def run_cell(given: argparse.Namespace) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        cluster = start_cluster(
            make_checkpoint(Path(folder) / "model", hidden=64, layers=4),
            prefill_workers=2,
            decode_workers=2,
            handoff="always",
            before_start=with_worker_flags("--kv-transport", given.engine, "--insecure"),
        )
        try:
            return asyncio.run(disturb_cell(cluster, given.kills, given.seed))
        finally:
            cluster.local.stop()


def main() -> int:
    """Run, and return the exit status."""
    parser = argparse.ArgumentParser(description="Kills in the middle of transfers")
    parser.add_argument("--engine", choices=("nixl", "mooncake"), default="nixl")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--cell", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    if given.cell:
        seen = run_cell(given)
    else:
        seen = asyncio.run(disturb_memory(given.engine, given.kills, given.seed))
    seen = +seen
    told = ", ".join(f"{count} {what}" for what, count in sorted(seen.items()))
    print(f"{given.engine}: {told}, {time.monotonic() - began:.0f} s")
    is_right = not any(what.isupper() or what.split()[0].isupper() for what in seen)
    sys.stdout.flush()
    # Threads of a library that is stuck do not keep the process.
    os._exit(0 if is_right and any(what.startswith("right") for what in seen) else 1)


if __name__ == "__main__":
    main()
