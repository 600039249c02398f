"""Puts and gets of KV blocks over links that damage what passes."""

import asyncio
import collections
import os
import random
from contextlib import aclosing
from pathlib import Path

from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from support.cells.kv_cells import PATIENCE_SECONDS
from support.processes.damage import KINDS, Fault, damaging_link

NUM_BYTES = 4096
LAYOUT = BlockLayout(
    b"m" * 32,
    b"n" * 32,
    (CacheGroup(num_layers=2, block_size=16, bytes_per_block=NUM_BYTES, dtype="float32"),),
)
# As many as may wait to be written: a quarter of the memory.
AT_A_TIME = 8


def make_blocks(count: int, dice: random.Random) -> list[OutgoingBlock]:
    return [
        OutgoingBlock(dice.randbytes(16), None, memoryview(dice.randbytes(NUM_BYTES)))
        for _ in range(count)
    ]


class Peer:
    """A worker's connector to a store."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.connector = KvStoreConnector()

    async def get(self, names: list[bytes]) -> dict[bytes, bytes]:
        async with aclosing(self.connector.get(self.address, names, PATIENCE_SECONDS)) as loaded:
            return {block.name: bytes(block.payload) async for block in loaded}


class Wire:
    """Puts and gets over links that damage what passes; counts how they ended."""

    def __init__(self, folder: Path, address: str, seed: int) -> None:
        self.ends = collections.Counter[str]()
        self._folder = folder
        self._to = address.removeprefix("unix:")
        self._dice = random.Random(seed)
        self._direct = Peer(address)

    async def run(self, count: int) -> None:
        """Send damaged bytes until `count` faults have happened."""
        await self._direct.connector.register(LAYOUT, [self._direct.address])
        numbers = iter(range(100 * count))

        async def work() -> None:
            while self.ends.total() < count:
                await self._try(next(numbers))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_A_TIME):
                tasks.create_task(work())
        await self._direct.connector.close()

    async def _try(self, number: int) -> None:
        dice = self._dice
        fault = Fault(dice.choice(KINDS), dice.random() < 0.5, dice.randrange(10_500))
        blocks = make_blocks(2, dice)
        expected = {block.name: bytes(block.payload) for block in blocks}
        listen = str(self._folder / f"{number}.sock")
        async with damaging_link(listen, self._to, fault, dice):
            end = await self._use(f"unix:{listen}", blocks)
        os.unlink(listen)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await self._is_as_put(expected):
                await asyncio.sleep(0.05)
        if fault.is_done:
            self.ends[end] += 1

    async def _is_as_put(self, expected: dict[bytes, bytes]) -> bool:
        """Whether what the store has it has as it was put; False while it begins anew to listen,
        as it does after a path that is no UTF-8."""
        try:
            for name, payload in expected.items():
                assert await self._direct.get([name]) in ({}, {name: payload})
        except UnavailableError:
            return False
        return True

    async def _use(self, address: str, blocks: list[OutgoingBlock]) -> str:
        """Put and get over one link; how it ended: harmless, missed or refused."""
        expected = {block.name: bytes(block.payload) for block in blocks}
        connector, names = KvStoreConnector(stall_seconds=1.0), list(expected)
        try:
            await connector.register(LAYOUT, [address])
            stored = await connector.put(blocks)
            async with aclosing(connector.get(address, names, 1.0)) as loaded:
                found = {block.name: bytes(block.payload) async for block in loaded}
        except PagewireError:
            return "refused"
        finally:
            await connector.close()
        assert found.items() <= expected.items()
        return "harmless" if stored == set(names) and found == expected else "missed"


def num_damaged() -> float:
    """How many damaged blocks the workers of this process counted."""
    samples = [sample for metric in metrics.DAMAGED_BLOCKS.collect() for sample in metric.samples]
    return sum(sample.value for sample in samples if sample.name.endswith("_total"))


def use_damaged_wire(
    folder: Path, address: str, count: int, seed: int
) -> tuple[collections.Counter[str], float]:
    """Return how uses ended while `count` faults happened, and the damaged blocks that were
    noticed."""
    wire = Wire(folder, address, seed)
    asyncio.run(wire.run(count))
    return wire.ends, num_damaged()
