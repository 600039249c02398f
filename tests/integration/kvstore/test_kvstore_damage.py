"""Bits flipped, records cut and swapped in files, in Redis and on the wire: what a worker is served
is what was put, and all that was damaged is counted."""

import asyncio
import collections
import os
import random
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path

import pytest
import redis

from pagewire_kvstore.tiers.record_codec import decode_header
from pagewire_shared.errors import PagewireError, UnavailableError
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from support.cells.kv_cells import PATIENCE_SECONDS
from support.processes.damage import KINDS, Fault, damaged, damaging_link
from support.processes.kv_stores import KvStore, RedisServer, tier_stats

NUM_BYTES = 4096
LAYOUT = BlockLayout(
    b"m" * 32,
    b"n" * 32,
    (CacheGroup(num_layers=2, block_size=16, bytes_per_block=NUM_BYTES, dtype="float32"),),
)
# As many as the store has memory for.
NUM_IN_MEMORY = 32
NUM_BELOW = 48
# As many as may wait to be written: a quarter of the memory.
AT_A_TIME = 8


def make_blocks(count: int, dice: random.Random) -> list[OutgoingBlock]:
    return [
        OutgoingBlock(dice.randbytes(16), None, memoryview(dice.randbytes(NUM_BYTES)))
        for _ in range(count)
    ]


class Files:
    """The records of a disk tier."""

    def __init__(self, folder: Path) -> None:
        self.flags = ("--disk-path", str(folder))
        self._folder = folder / "blocks"

    def read(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self._folder.glob("*/*.kv")}

    def write(self, where: str, data: bytes) -> None:
        Path(where).write_bytes(data)


class Values:
    """The records in a Redis."""

    def __init__(self, server: RedisServer) -> None:
        self.flags = ("--redis", server.url)
        self._client = redis.Redis(unix_socket_path=str(server.socket))

    def read(self) -> dict[str, bytes]:
        names = [name.decode() for name in self._client.scan_iter("*", count=1000)]
        values = {name: self._client.get(name) for name in names if "quarantine" not in name}
        return {name: value for name, value in values.items() if isinstance(value, bytes)}

    def write(self, where: str, data: bytes) -> None:
        self._client.set(where, data)


def by_name(records: Mapping[str, bytes]) -> dict[bytes, tuple[str, bytes]]:
    """Return place and content of every record by the name of its block."""
    return {decode_header(data).key.name: (where, data) for where, data in records.items()}


class Peer:
    """A worker's connector to a store."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.connector = KvStoreConnector()

    async def get(self, names: list[bytes]) -> dict[bytes, bytes]:
        async with aclosing(self.connector.get(self.address, names, PATIENCE_SECONDS)) as loaded:
            return {block.name: bytes(block.payload) async for block in loaded}


async def damage_records(store: KvStore, tier: str, records: Files | Values, count: int) -> None:
    """Damage records below the memory, ask for each, and put it again."""
    dice = random.Random(count)
    peer, done = Peer(store.address), collections.Counter[str]()
    await peer.connector.register(LAYOUT, [store.address])
    below, above = make_blocks(NUM_BELOW, dice), make_blocks(NUM_IN_MEMORY, dice)
    expected = {block.name: bytes(block.payload) for block in above + below}
    async with asyncio.timeout(PATIENCE_SECONDS):
        for begin in range(0, NUM_IN_MEMORY, AT_A_TIME):
            await peer.connector.put(above[begin : begin + AT_A_TIME])
            while len(by_name(records.read())) < begin + AT_A_TIME:
                await asyncio.sleep(0.01)
    while done.total() < count:
        async with asyncio.timeout(PATIENCE_SECONDS):
            # What the store has no room for at the moment it leaves out.
            while len(found := by_name(records.read())) < len(expected):
                left = [block for block in below if block.name not in found]
                await peer.connector.put(left[:AT_A_TIME])
            # Until the memory holds nothing but these.
            while (await tier_stats(store.address))["memory"].num_blocks < NUM_IN_MEMORY:
                await asyncio.sleep(0.01)
        for block in above:
            assert await peer.get([block.name]) == {block.name: expected[block.name]}
        for block in below:
            where, data = found[block.name]
            other = found[dice.choice([name for name in expected if name != block.name])][1]
            kind = dice.choice(KINDS)
            records.write(where, damaged(kind, data, other, dice))
            done[kind] += 1
        for block in below:
            assert await peer.get([block.name]) == {}
        assert (await tier_stats(store.address))[tier].num_corrupt == done.total()
    assert await peer.get([block.name for block in above]) == {
        block.name: expected[block.name] for block in above
    }
    assert set(done) == set(KINDS)
    await peer.connector.close()


COUNTS = [200, pytest.param(3400, marks=[pytest.mark.long, pytest.mark.timeout(300)])]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("tier", ["disk", "redis"])
def test_no_damaged_record_is_served(tmp_path: Path, tier: str, count: int) -> None:
    memory = ("--memory-size", str(NUM_IN_MEMORY * NUM_BYTES), "--log-level", "error")
    with RedisServer(tmp_path) as server:
        records = Values(server) if tier == "redis" else Files(tmp_path / "disk")
        with KvStore(tmp_path, *records.flags, *memory) as store:
            asyncio.run(damage_records(store, tier, records, count))


class Wire:
    """Puts and gets over links that damage what passes; counts how they ended."""

    def __init__(self, folder: Path, store: KvStore, seed: int) -> None:
        self.ends = collections.Counter[str]()
        self._folder = folder
        self._to = store.address.removeprefix("unix:")
        self._dice = random.Random(seed)
        self._direct = Peer(store.address)

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


@pytest.mark.parametrize("count", COUNTS)
def test_nothing_damaged_on_the_wire_is_served(tmp_path: Path, count: int) -> None:
    before = num_damaged()
    with KvStore(
        tmp_path, "--memory-size", "16MiB", "--shared-memory-path", "off", "--log-level", "error"
    ) as store:
        wire = Wire(tmp_path, store, count)
        asyncio.run(wire.run(count))
        assert store.process.poll() is None, "the store has ended"
    assert wire.ends.total() >= count
    # Frames that steer the connection, and names in a hello.
    assert wire.ends["harmless"] < 0.35 * count
    assert wire.ends["refused"] > 0.2 * count
    assert num_damaged() > before
