"""Bits flipped, records cut and swapped in files, in Redis and on the wire: what a worker is served
is what was put, and all that was damaged is counted."""

import asyncio
import collections
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from support.cells.kv_cells import PATIENCE_SECONDS
from support.processes.damage import KINDS, damaged
from support.processes.damaged_wire import (
    AT_A_TIME,
    LAYOUT,
    NUM_BYTES,
    Peer,
    make_blocks,
    use_damaged_wire,
)
from support.processes.kv_stores import KvStore, RedisServer, tier_stats
from support.processes.store_records import Files, Values, by_name
from support.products import WHOLE

# As many as the store has memory for.
NUM_IN_MEMORY = 32
NUM_BELOW = 48


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


COUNTS = [
    200,
    pytest.param(3400, marks=[*WHOLE, pytest.mark.timeout(300)]),
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("tier", ["disk", "redis"])
def test_no_damaged_record_is_served(tmp_path: Path, tier: str, count: int) -> None:
    memory = ("--memory-size", str(NUM_IN_MEMORY * NUM_BYTES), "--log-level", "error")
    with RedisServer(tmp_path) as server:
        records = Values(server) if tier == "redis" else Files(tmp_path / "disk")
        with KvStore(tmp_path, *records.flags, *memory) as store:
            asyncio.run(damage_records(store, tier, records, count))


@pytest.mark.parametrize("count", COUNTS)
def test_nothing_damaged_on_the_wire_is_served(tmp_path: Path, count: int) -> None:
    with KvStore(
        tmp_path, "--memory-size", "16MiB", "--shared-memory-path", "off", "--log-level", "error"
    ) as store:
        ends, num_noticed = in_own_process(tmp_path, store.address, count)
        assert store.process.poll() is None, "the store has ended"
    assert ends.total() >= count
    # Frames that steer the connection, and names in a hello.
    assert ends["harmless"] < 0.35 * count
    assert ends["refused"] > 0.2 * count
    assert num_noticed > 0


def in_own_process(
    folder: Path, address: str, count: int
) -> tuple[collections.Counter[str], float]:
    """Damage the wire from a process of its own: some damage ends gRPC's core, and its process. A
    worker is started again then; here other damage is tried."""
    for seed in range(count, count + 3):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            try:
                return pool.submit(use_damaged_wire, folder, address, count, seed).result()
            except BrokenProcessPool:
                continue
    pytest.fail("three processes in a row have ended")
