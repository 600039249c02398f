"""Blocks over memory and disk: found wherever they are, whole or not at all, and never announced
wrongly."""

import asyncio
import contextlib
import threading
from dataclasses import replace

import pytest

from pagewire_kvstore.blocks.event_log import BlockChange
from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.tiers.disk import tier as disk_threads
from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_shared.errors import InvalidRequestError, OverloadedError
from support.cells.store_cell import CAPACITY, Cell, names, running
from support.processes.disk_blocks import (
    FILE_BYTES,
    block_key,
    block_payload,
    block_record,
    path_of,
)


async def test_without_a_disk_evicted_blocks_are_gone():
    async with running() as cell:
        for number in range(6):
            cell.store.put([block_record(number)])
        assert cell.announced() == names(2, 3, 4, 5)
        assert await cell.payload(1) is None
        assert await cell.payload(5) == block_payload(5)


async def test_evicted_blocks_come_back_from_disk(tmp_path):
    async with running(tmp_path) as cell:
        for number in range(6):
            cell.store.put([block_record(number)])
        await cell.store.wait_written()
        assert cell.announced() == names(*range(6)) == set(cell.store.names())
        for tier in ("disk", "memory"):
            for number in (0, 1):
                assert await cell.found(number) == (block_payload(number), tier)
        for number in range(6):
            assert await cell.payload(number) == block_payload(number)
        assert cell.state("disk").num_hits > 2
        assert cell.state("memory").num_misses == cell.state("disk").num_hits
        assert cell.announced() == names(*range(6))


async def test_a_restart_finds_the_blocks_on_disk(tmp_path):
    async with running(tmp_path) as cell:
        for number in range(3):
            cell.store.put([block_record(number)])
        await cell.store.wait_written()
    async with running(tmp_path) as cell:
        assert set(cell.store.names()) == names(0, 1, 2)
        assert await cell.payload(2) == block_payload(2)


async def test_blocks_queued_for_the_disk_can_be_loaded(tmp_path):
    cell = Cell(tmp_path)
    for number in range(6):
        cell.store.put([block_record(number)])
    # Nobody writes: the first two are in no tier but on their way.
    assert await cell.payload(0) == block_payload(0)
    assert cell.announced() == names(*range(6))
    cell.store.close()


async def test_blocks_that_the_queue_refuses_stay_in_memory(tmp_path):
    cell = Cell(tmp_path, queued_bytes=2500)
    for number in range(6):
        cell.store.put([block_record(number)])
    assert cell.announced() == names(0, 1, 2, 3, 4, 5)
    cell.store.put([block_record(6)])
    assert cell.announced() == names(0, 1, 3, 4, 5, 6)
    assert await cell.payload(2) is None
    cell.store.close()


async def test_disk_evictions_are_logged_unless_memory_has_the_block(tmp_path):
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


async def test_a_damaged_file_is_a_miss_and_logged_as_removed(tmp_path):
    async with running(tmp_path) as cell:
        cell.store.put([block_record(0)])
        await cell.store.wait_written()
    path = path_of(tmp_path, 0)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    async with running(tmp_path) as cell:
        assert set(cell.store.names()) == names(0)
        assert await cell.payload(0) is None
        assert cell.store.names() == []
        assert [event.change for event in cell.events.since(1)] == [BlockChange.REMOVED]
        assert cell.state("disk").num_corrupt == 1


async def test_a_failing_disk_leaves_the_other_tiers_working(tmp_path):
    async with running(tmp_path) as cell:
        cell.store.put([block_record(0)])
        await cell.store.wait_written()
        assert cell.store.faults() == {}
        # A file where a folder should be.
        folder = path_of(tmp_path, 1).parent
        assert not folder.exists()
        folder.write_text("")
        cell.store.put([block_record(1)])
        await cell.store.wait_written()
        assert "disk tier cannot put" in cell.store.faults()["disk"]
        assert await cell.payload(1) == block_payload(1)
        folder.unlink()
        cell.store.put([block_record(2)])
        await cell.store.wait_written()
        assert cell.store.faults() == {}
        assert cell.state("disk").num_faults == 1


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


def groups_of(number, num_groups):
    key = block_key(number)
    return [
        replace(block_record(number), key=BlockKey(key.layout_id, group, key.name))
        for group in range(num_groups)
    ]


async def test_groups_are_stored_together_or_not_at_all():
    cell = Cell(pinned=[block_key(number) for number in range(2)])
    for number in range(3):
        cell.store.put([block_record(number)])
    cell.store.put(groups_of(8, 2))
    assert cell.announced() == names(0, 1, 8)
    # The third takes the place of the first.
    with pytest.raises(OverloadedError, match="all groups"):
        cell.store.put(groups_of(9, 3))
    assert cell.announced() == names(0, 1)
    assert cell.state("memory").num_blocks == 2
    cell.store.put(groups_of(9, 2))
    assert cell.announced() == names(0, 1, 9)
    # A refused one evicted what had been there.
    cell.pinned.add(groups_of(9, 2)[1].key)
    with pytest.raises(InvalidRequestError):
        cell.store.put([*groups_of(8, 1), replace(groups_of(8, 2)[1], payload=b"")])
    assert cell.announced() == names(0, 1)
    cell.store.close()


async def test_a_reader_keeps_a_block_that_is_evicted_meanwhile():
    cell = Cell()
    cell.store.put([block_record(0)])
    async with cell.store.load(block_key(0)) as loaded:
        for number in range(1, 8):
            cell.store.put([block_record(number)])
        assert bytes(loaded.record.payload) == block_payload(0)
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


async def test_a_block_that_is_put_again_is_logged_once(tmp_path):
    async with running(tmp_path) as cell:
        for number in (0, 1, 2, 3, 4, 0, 4):
            cell.store.put([block_record(number)])
            await cell.store.wait_written()
        assert cell.announced() == names(*range(5))


async def test_a_disk_that_hangs_is_left_alone(tmp_path, monkeypatch):
    may_go_on = threading.Event()
    monkeypatch.setattr(disk_threads, "READ_SECONDS", 0.05)
    async with running(tmp_path) as cell:
        for number in range(6):
            cell.store.put([block_record(number)])
            await cell.store.wait_written()
        with monkeypatch.context() as patch:
            patch.setattr(DiskBlocks, "get", lambda tier, key: may_go_on.wait(60))
            for _ in range(3):
                assert await cell.found(0) == (None, None)
            assert "no answer" in cell.store.faults()["disk"]
            assert cell.state("disk").num_faults == 3
            for _ in range(50):
                assert await cell.found(0) == (None, None)
            assert cell.state("disk").num_faults < 10
            may_go_on.set()
        async with asyncio.timeout(20):
            while await cell.payload(0) is None:
                await asyncio.sleep(0.01)
        assert cell.store.faults() == {}
