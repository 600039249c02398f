"""Blocks over memory and disk: found wherever they are, whole or not at all, and never announced
wrongly."""

import asyncio
import contextlib

import pytest

from pagewire_kvstore.block_store import BlockStore
from pagewire_kvstore.disk_tier import DiskTier
from pagewire_kvstore.event_log import BlockChange, EventLog
from pagewire_kvstore.extents import GRANULE_BYTES
from pagewire_kvstore.memory_tier import MemoryTier
from pagewire_shared.errors import InvalidRequestError, OverloadedError
from support.disk_blocks import FILE_BYTES, block_key, block_payload, block_record, path_of

CAPACITY = 4 * GRANULE_BYTES


class Cell:
    """A store, and what its events say is there."""

    def __init__(self, folder=None, *, disk_bytes=1 << 20, queued_bytes=1 << 20, pinned=()):
        self.pinned = set(pinned)
        self.disk = None if folder is None else DiskTier(folder, disk_bytes)
        self.events = EventLog(1000)
        memory = MemoryTier(CAPACITY, lambda _: None, self.pinned.__contains__)
        self.store = BlockStore(memory, self.disk, self.events, max_queued_bytes=queued_bytes)

    def announced(self):
        names = set()
        for event in self.events.since(1):
            if event.change is BlockChange.STORED:
                assert not names.intersection(event.names), "announced twice"
                names.update(event.names)
            else:
                names.difference_update(event.names)
        return names

    async def payload(self, number):
        async with self.store.load(block_key(number)) as record:
            return None if record is None else bytes(record.payload)


@contextlib.asynccontextmanager
async def running(*args, **options):
    cell = Cell(*args, **options)
    task = asyncio.create_task(cell.store.run())
    try:
        yield cell
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cell.store.close()


def names(*numbers):
    return {block_key(number).name for number in numbers}


async def test_without_a_disk_what_memory_evicts_is_gone():
    async with running() as cell:
        for number in range(6):
            cell.store.put([block_record(number)])
        assert cell.announced() == names(2, 3, 4, 5)
        assert await cell.payload(1) is None
        assert await cell.payload(5) == block_payload(5)


async def test_what_memory_evicts_comes_back_from_disk(tmp_path):
    async with running(tmp_path) as cell:
        for number in range(6):
            cell.store.put([block_record(number)])
        await cell.store.wait_written()
        assert cell.announced() == names(*range(6)) == set(cell.store.names())
        for number in range(6):
            assert await cell.payload(number) == block_payload(number)
        assert cell.store.num_promoted > 0
        assert cell.announced() == names(*range(6))


async def test_a_restart_finds_what_was_on_disk(tmp_path):
    async with running(tmp_path) as cell:
        for number in range(3):
            cell.store.put([block_record(number)])
        await cell.store.wait_written()
    async with running(tmp_path) as cell:
        assert set(cell.store.names()) == names(0, 1, 2)
        assert await cell.payload(2) == block_payload(2)


async def test_what_waits_for_the_disk_can_be_loaded(tmp_path):
    cell = Cell(tmp_path)
    for number in range(6):
        cell.store.put([block_record(number)])
    # Nobody writes: the first two are in no tier but on their way.
    assert await cell.payload(0) == block_payload(0)
    assert cell.announced() == names(*range(6))
    cell.store.close()


async def test_what_the_queue_refuses_lives_in_memory_alone(tmp_path):
    cell = Cell(tmp_path, queued_bytes=2500)
    for number in range(6):
        cell.store.put([block_record(number)])
    assert cell.announced() == names(0, 1, 2, 3, 4, 5)
    cell.store.put([block_record(6)])
    assert cell.announced() == names(0, 1, 3, 4, 5, 6)
    assert await cell.payload(2) is None
    cell.store.close()


async def test_what_the_disk_evicts_is_told_unless_memory_has_it(tmp_path):
    async with running(tmp_path, disk_bytes=6 * FILE_BYTES) as cell:
        for number in range(8):
            cell.store.put([block_record(number)])
            await cell.store.wait_written()
        # The last six are on disk, the last four in memory.
        assert cell.announced() == names(2, 3, 4, 5, 6, 7)
    async with running(tmp_path / "small", disk_bytes=2 * FILE_BYTES) as cell:
        for number in range(6):
            cell.store.put([block_record(number)])
            await cell.store.wait_written()
        assert cell.announced() == names(2, 3, 4, 5)


async def test_a_damaged_file_is_a_miss_that_is_told(tmp_path):
    async with running(tmp_path) as cell:
        cell.store.put([block_record(0)])
        await cell.store.wait_written()
    path = path_of(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    async with running(tmp_path) as cell:
        cell.events.add(BlockChange.STORED, list(names(0)))
        assert await cell.payload(0) is None
        assert cell.announced() == set()
        assert cell.disk.num_corrupt == 1


async def test_a_disk_that_fails_costs_nothing_but_itself(tmp_path):
    async with running(tmp_path) as cell:
        cell.store.put([block_record(0)])
        await cell.store.wait_written()
        assert cell.store.disk_fault is None
        # A file where a folder should be.
        folder = path_of(tmp_path, 1).parent
        assert not folder.exists()
        folder.write_text("")
        cell.store.put([block_record(1)])
        await cell.store.wait_written()
        assert "disk tier cannot put" in cell.store.disk_fault
        assert await cell.payload(1) == block_payload(1)
        folder.unlink()
        cell.store.put([block_record(2)])
        await cell.store.wait_written()
        assert cell.store.disk_fault is None


async def test_a_block_that_does_not_fit_stores_none_of_its_groups():
    cell = Cell(pinned=[block_key(number) for number in range(4)])
    for number in range(4):
        cell.store.put([block_record(number)])
    with pytest.raises(OverloadedError):
        cell.store.put([block_record(4)])
    with pytest.raises(InvalidRequestError):
        cell.store.put([block_record(5, size=CAPACITY + 1)])
    assert cell.announced() == names(0, 1, 2, 3)
    cell.store.close()


async def test_a_reader_keeps_what_is_evicted_meanwhile():
    cell = Cell()
    cell.store.put([block_record(0)])
    async with cell.store.load(block_key(0)) as record:
        for number in range(1, 8):
            cell.store.put([block_record(number)])
        assert bytes(record.payload) == block_payload(0)
    # And lets go: there is room for four others again.
    cell.store.put([block_record(8)])
    async with contextlib.AsyncExitStack() as stack:
        for number in range(5, 9):
            await stack.enter_async_context(cell.store.load(block_key(number)))
        with pytest.raises(OverloadedError):
            cell.store.put([block_record(9)])
    for number in range(9, 13):
        cell.store.put([block_record(number)])
    assert cell.announced() == names(9, 10, 11, 12)
    cell.store.close()


async def test_a_block_that_is_put_again_is_told_once(tmp_path):
    async with running(tmp_path) as cell:
        for number in (0, 1, 2, 3, 4, 0, 4):
            cell.store.put([block_record(number)])
            await cell.store.wait_written()
        assert cell.announced() == names(*range(5))
