"""Loads of one block at the same time are one read, and leave nothing held."""

import asyncio
import threading

import pytest

from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from support.cells.store_cell import running
from support.processes.disk_blocks import block_key, block_payload, block_record


class SlowDisk:
    """Counts reads; each waits until it may go on."""

    def __init__(self, monkeypatch):
        self.num_reads = 0
        self.is_reading, self.may_go_on = threading.Event(), threading.Event()
        get = DiskBlocks.get

        def get_slowly(tier, key):
            self.num_reads += 1
            self.is_reading.set()
            assert self.may_go_on.wait(60)
            return get(tier, key)

        monkeypatch.setattr(DiskBlocks, "get", get_slowly)

    async def reads(self):
        assert await asyncio.to_thread(self.is_reading.wait, 60)


@pytest.fixture
def disk(monkeypatch):
    return SlowDisk(monkeypatch)


async def filled(cell, count=6):
    """Memory has the last four of these."""
    for number in range(count):
        cell.store.put([block_record(number)])
    await cell.store.wait_written()


def held(cell):
    return cell.store._memory._num_refs


async def test_loads_at_the_same_time_are_one_read(tmp_path, disk):
    async with running(tmp_path) as cell:
        await filled(cell)
        loads = [asyncio.create_task(cell.found(0)) for _ in range(10)]
        await disk.reads()
        other = asyncio.create_task(cell.found(0))
        disk.may_go_on.set()
        assert await asyncio.gather(*loads, other) == [(block_payload(0), "disk")] * 11
        assert disk.num_reads == 1
        assert held(cell) == {}
        assert cell.store._loads._reads == {}
        assert await cell.found(0) == (block_payload(0), "memory")


async def test_each_load_has_its_own_pin_reference(tmp_path, disk):
    async with running(tmp_path) as cell:
        await filled(cell)
        disk.may_go_on.set()
        first, second = cell.store.load(block_key(0)), cell.store.load(block_key(0))
        one, two = await asyncio.gather(first.__aenter__(), second.__aenter__())
        await first.__aexit__(None, None, None)
        # Whatever comes now, the second still reads what it has.
        await filled(cell, 12)
        assert bytes(two.record.payload) == block_payload(0)
        assert list(held(cell).values()) == [1]
        await second.__aexit__(None, None, None)
        assert held(cell) == {}
        assert one.tier == two.tier == "disk"


async def test_a_cancelled_load_leaves_the_others_running(tmp_path, disk):
    async with running(tmp_path) as cell:
        await filled(cell)
        first, second = (asyncio.create_task(cell.found(0)) for _ in range(2))
        await disk.reads()
        first.cancel()
        await asyncio.wait((first,))
        disk.may_go_on.set()
        assert await second == (block_payload(0), "disk")
        assert held(cell) == {}


async def test_a_read_without_waiting_loads_is_cancelled(tmp_path, disk):
    async with running(tmp_path) as cell:
        await filled(cell)
        loads = [asyncio.create_task(cell.found(0)) for _ in range(2)]
        await disk.reads()
        for load in loads:
            load.cancel()
        await asyncio.wait(loads)
        assert cell.store._loads._reads == {}
        disk.may_go_on.set()
        assert await cell.found(0) == (block_payload(0), "disk")
        assert held(cell) == {}


async def test_a_load_after_a_deletion_does_not_share_a_read_from_before(tmp_path, disk):
    async with running(tmp_path) as cell:
        await filled(cell)
        before = asyncio.create_task(cell.found(0))
        await disk.reads()
        assert await cell.store.delete_tenant("t") == 6
        after = asyncio.create_task(cell.found(0))
        disk.may_go_on.set()
        assert await after == (None, None)
        await before
        assert not cell.store.holds(block_key(0))
