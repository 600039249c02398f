"""A store of memory and disk in any order of calls: what it says is there and what it serves."""

import asyncio
import random
from dataclasses import replace

import pytest

from pagewire_shared.errors import OverloadedError
from support.cells.store_cell import names, running
from support.processes.disk_blocks import FILE_BYTES, SIZE, block_key, block_payload, block_record

NUM_BLOCKS = 16
TENANTS = ("a", "b", "c")


def tenant_of(number):
    return TENANTS[number % len(TENANTS)]


def held_by(store):
    return [number for number in range(NUM_BLOCKS) if store.holds(block_key(number))]


async def take_step(cell, dice, reserved):
    number = dice.randrange(NUM_BLOCKS)
    act = dice.choice(("put", "put", "put", "load", "load", "reserve", "end", "delete", "wait"))
    if act == "put":
        try:
            cell.store.put([replace(block_record(number), tenant=tenant_of(number))])
        except OverloadedError:
            assert reserved or cell.pinned
        else:
            assert cell.store.holds(block_key(number))
    elif act == "load":
        async with cell.store.load(block_key(number)) as loaded:
            if loaded is not None:
                assert bytes(loaded.record.payload) == block_payload(number)
                # Without room in memory it is a copy, and the disk may have evicted it meanwhile.
                assert loaded.pin is None or block_key(number).name in cell.store.names()
    elif act == "reserve" and len(reserved) < 2:
        key = block_key(number)
        reservation = cell.store.reserve(key, SIZE, tenant_of(number))
        if reservation is not None:
            cell.store._memory._arena.write(reservation.offset, block_payload(number))
            reserved.append((number, reservation))
    elif act == "end" and reserved:
        number, reservation = reserved.pop()
        if dice.random() < 0.5:
            cell.store.abandon(reservation)
        else:
            cell.store.commit([reservation], [block_record(number).checksum])
            assert cell.store.holds(block_key(number))
    elif act == "delete" and dice.random() < 0.2:
        tenant = dice.choice(TENANTS)
        await cell.store.wait_written()
        theirs = names(*(n for n in range(NUM_BLOCKS) if tenant_of(n) == tenant))
        known = theirs & set(cell.store.names())
        assert await cell.store.delete_tenant(tenant) == len(known)
        assert not theirs & set(cell.store.names())
    elif act == "wait":
        await cell.store.wait_written()
        # Whatever the disk evicted has been told by now.
        assert names(*held_by(cell.store)) == set(cell.store.names())


@pytest.mark.parametrize("seed", range(12))
async def test_any_order_of_calls_keeps_the_invariants(tmp_path, seed):
    dice = random.Random(seed)
    pinned = {block_key(number) for number in dice.sample(range(NUM_BLOCKS), seed % 3)}
    reserved = []
    options = {"queued_bytes": dice.choice((SIZE, 4 * SIZE)), "pinned": pinned}
    options["disk_quota"] = dice.choice((None, 3 * FILE_BYTES))
    async with running(tmp_path, disk_bytes=7 * FILE_BYTES, **options) as cell:
        for _ in range(250):
            await take_step(cell, dice, reserved)
            await asyncio.sleep(0)
            assert names(*held_by(cell.store)) <= cell.announced() == set(cell.store.names())
        while reserved:
            cell.store.abandon(reserved.pop()[1])
        await cell.store.wait_written()
        assert cell.store.faults() == {}
        assert cell.state("disk").num_corrupt == 0
        for tenant in TENANTS:
            await cell.store.delete_tenant(tenant)
        # Nothing is left over: no hold, no file, no name.
        assert [(s.num_blocks, s.used_bytes) for s in cell.store.states()] == [(0, 0), (0, 0)]
        assert cell.store.names() == []
