"""Room in shared memory that peers write to: seen by nobody until it is a block."""

import asyncio

import pytest

from pagewire_shared.errors import OverloadedError
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.cells.store_cell import CAPACITY, Cell, names, running
from support.processes.disk_blocks import block_key, block_payload, block_record


def write_to(cell, reservation, payload):
    """What a peer does that has mapped the arena."""
    cell.store._memory._arena.write(reservation.offset, payload)


async def test_a_reservation_becomes_a_block(tmp_path):
    async with running(tmp_path) as cell:
        record = block_record(0)
        reservation = cell.store.reserve(record.key, len(record.payload), record.tenant)
        write_to(cell, reservation, record.payload)
        assert not cell.store.holds(record.key)
        assert await cell.payload(0) is None
        assert cell.announced() == set()
        assert bytes(reservation.view) == record.payload
        cell.store.commit([reservation], [record.checksum])
        assert await cell.found(0) == (block_payload(0), "memory")
        assert cell.announced() == names(0)
        await cell.store.wait_written()
        for number in range(1, 6):
            cell.store.put([block_record(number)])
        assert await cell.found(0) == (block_payload(0), "disk")


async def test_reservations_take_room_until_they_end():
    cell = Cell(quota=3 * GRANULE_BYTES)
    reserved = [cell.store.reserve(block_key(number), 1000, "t") for number in range(3)]
    assert None not in reserved
    assert len({reservation.offset for reservation in reserved}) == 3
    assert cell.store.reserve(block_key(3), 1000, "t") is None
    assert cell.store.reserve(block_key(3), CAPACITY, "u") is None
    with pytest.raises(OverloadedError):
        cell.store.put([block_record(4)])
    assert cell.state("memory").num_blocks == 0
    assert cell.state("memory").used_bytes == 3 * GRANULE_BYTES
    assert await cell.store.delete_tenant("t") == 0
    cell.store.abandon(reserved[0])
    cell.store.put([block_record(4)])
    # Somebody else was faster.
    cell.store.abandon(reserved[1])
    cell.store.put([block_record(2)])
    write_to(cell, reserved[2], b"wrong" * 200)
    cell.store.commit([reserved[2]], [0])
    assert await cell.payload(2) == block_payload(2)
    assert cell.state("memory").used_bytes == 2 * GRANULE_BYTES
    assert cell.announced() == names(2, 4)
    cell.store.close()


async def test_a_block_stays_in_shared_memory_until_it_is_written_through(tmp_path):
    cell = Cell(tmp_path)
    record = block_record(0)
    reservation = cell.store.reserve(record.key, len(record.payload), record.tenant)
    write_to(cell, reservation, record.payload)
    cell.store.commit([reservation], [record.checksum])
    for number in range(1, 9):
        cell.store.put([block_record(number)])
    # Nobody writes yet: the oldest is still there.
    assert await cell.found(0) == (block_payload(0), "memory")
    task = asyncio.create_task(cell.store.run())
    await cell.store.wait_written()
    for number in range(11, 19):
        cell.store.put([block_record(number)])
    assert await cell.found(0) == (block_payload(0), "disk")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    cell.store.close()
