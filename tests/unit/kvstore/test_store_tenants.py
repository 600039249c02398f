"""Blocks of several tenants in one store: quotas, and deleting what is whose."""

import asyncio
import threading
from dataclasses import replace

import pytest

from pagewire_kvstore.tiers.disk.blocks import DiskBlocks
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.cells.store_cell import names, running
from support.processes.disk_blocks import (
    FILE_BYTES,
    block_key,
    block_payload,
    block_record,
    path_of,
)


async def test_a_tenant_is_deleted_everywhere_and_counted_once(tmp_path):
    async with running(tmp_path) as cell:
        for number in range(4):
            cell.store.put([block_record(number)])
        await cell.store.wait_written()
        for number in range(4, 6):
            cell.store.put([replace(block_record(number), tenant="other")])
        # The last two are in memory and on their way.
        for number in range(6, 8):
            cell.store.put([block_record(number)])
        assert await cell.store.delete_tenant("t") == 6
        assert cell.announced() == names(4, 5) == set(cell.store.names())
        for number in (0, 3, 6, 7):
            assert await cell.found(number) == (None, None)
        await cell.store.wait_written()
        assert cell.disk.num_blocks == 2
        assert await cell.store.delete_tenant("t") == 0
        assert await cell.payload(4) == block_payload(4)
    async with running(tmp_path) as cell:
        assert set(cell.store.names()) == names(4, 5)


async def test_a_flood_of_one_tenant_leaves_the_others_their_quota(tmp_path):
    async with running(tmp_path, disk_bytes=8 * FILE_BYTES, quota=2 * GRANULE_BYTES) as cell:
        for number in (0, 1):
            cell.store.put([replace(block_record(number), tenant="quiet")])
        for number in range(10, 60):
            cell.store.put([block_record(number)])
        assert [await cell.found(number) for number in (0, 1)] == [
            (block_payload(number), "memory") for number in (0, 1)
        ]
        assert cell.store.quota_fits("t", 2 * GRANULE_BYTES)
        assert not cell.store.quota_fits("t", 2 * GRANULE_BYTES + 1)
    # On disk, too.
    disk = {"disk_bytes": 8 * FILE_BYTES, "disk_quota": 4 * FILE_BYTES}
    async with running(tmp_path / "disk", **disk) as cell:
        for number in (0, 1):
            cell.store.put([replace(block_record(number), tenant="quiet")])
        for number in range(10, 60):
            cell.store.put([block_record(number)])
            await cell.store.wait_written()
        assert [await cell.found(number) for number in (0, 1)] == [
            (block_payload(number), "disk") for number in (0, 1)
        ]
        assert cell.disk.num_blocks == 6


async def test_a_tenant_is_deleted_while_its_blocks_are_written(tmp_path, monkeypatch):
    is_writing, may_go_on = threading.Event(), threading.Event()
    put = DiskBlocks.put

    def put_slowly(tier, record):
        is_writing.set()
        assert may_go_on.wait(60)
        return put(tier, record)

    monkeypatch.setattr(DiskBlocks, "put", put_slowly)
    async with running(tmp_path) as cell:
        cell.store.put([replace(block_record(3), tenant="other")])
        for number in range(3):
            cell.store.put([block_record(number)])
        assert await asyncio.to_thread(is_writing.wait, 60)
        deletion = asyncio.create_task(cell.store.delete_tenant("other"))
        await asyncio.sleep(0)
        assert await cell.found(3) == (None, None)
        may_go_on.set()
        assert await deletion == 1
        await cell.store.wait_written()
        assert cell.disk.num_blocks == 3
        assert cell.announced() == names(0, 1, 2)


async def test_a_block_read_while_its_tenant_is_deleted_is_not_promoted(tmp_path, monkeypatch):
    is_reading, may_go_on = threading.Event(), threading.Event()
    get = DiskBlocks.get

    def get_slowly(tier, key):
        record = get(tier, key)
        is_reading.set()
        assert may_go_on.wait(60)
        return record

    monkeypatch.setattr(DiskBlocks, "get", get_slowly)
    async with running(tmp_path) as cell:
        for number in range(6):
            cell.store.put([block_record(number)])
            await cell.store.wait_written()
        load = asyncio.create_task(cell.found(0))
        assert await asyncio.to_thread(is_reading.wait, 60)
        assert await cell.store.delete_tenant("t") == 6
        may_go_on.set()
        assert await load in [(block_payload(0), "disk"), (None, None)]
        assert cell.store.names() == []
        assert not cell.store.holds(block_key(0))


async def test_one_undeletable_file_does_not_keep_the_others(tmp_path):
    async with running(tmp_path) as cell:
        for number in range(4):
            cell.store.put([block_record(number)])
        await cell.store.wait_written()
        path_of(tmp_path, 1).unlink()
        path_of(tmp_path, 1).mkdir()
        with pytest.raises(TierUnavailableError, match="disk tier cannot remove"):
            await cell.store.delete_tenant("t")
        # It says that it is there, since it may be.
        assert cell.announced() == names(1) == set(cell.store.names())
        assert cell.disk.num_blocks == 1
        path_of(tmp_path, 1).rmdir()
        assert await cell.store.delete_tenant("t") == 1
        assert cell.announced() == set()
