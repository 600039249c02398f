"""The queue before a slower tier: bounded, and every payload is let go exactly once."""

import asyncio
import contextlib
from collections import Counter
from dataclasses import replace

import pytest

from pagewire_kvstore.tiers.errors import RecordTooLargeError, TierUnavailableError
from pagewire_kvstore.tiers.health import TierHealth
from pagewire_kvstore.tiers.writer import TierWriter
from pagewire_shared.process.circuit import CircuitBreaker
from support.processes.disk_blocks import SIZE, block_key, block_record


class Cell:
    def __init__(self, max_queued_bytes=3 * SIZE):
        self.written = []
        self.gone = []
        self.released = Counter()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.error = None
        self.now = 0.0
        breaker = CircuitBreaker(max_failures=2, first_seconds=1.0)
        self.health = TierHealth(breaker, lambda: self.now)
        self.writer = TierWriter(self.write, self.health, max_queued_bytes, self.gone.append)

    async def write(self, record):
        await self.may_go_on.wait()
        if self.error is not None:
            raise self.error
        self.written.append(record.key)
        return [block_key(1000 + len(self.written))]

    def offer(self, number, **changes):
        record = replace(block_record(number), **changes)
        return self.writer.offer(record, lambda: self.released.update([number]))

    async def drain(self):
        task = asyncio.create_task(self.writer.run())
        async with asyncio.timeout(20):
            await self.writer.wait_idle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert self.writer.queued_bytes == 0


async def test_blocks_above_the_bound_are_dropped_and_counted():
    cell = Cell()
    assert [cell.offer(number) for number in (0, 1, 2, 3, 1)] == [True, True, True, False, True]
    assert cell.writer.queued_bytes == 3 * SIZE
    # The second time, block 1 was queued already.
    assert cell.released == Counter([3, 1])
    assert cell.writer.num_dropped == 1
    await cell.drain()
    assert cell.written == [block_key(number) for number in range(3)]
    assert cell.gone == [block_key(1001), block_key(1002), block_key(1003)]
    assert cell.released == Counter([0, 1, 1, 2, 3])


async def test_a_block_larger_than_the_queue_goes_alone():
    cell = Cell(max_queued_bytes=SIZE - 1)
    assert cell.offer(0)
    assert not cell.offer(1)
    await cell.drain()
    assert cell.offer(1)
    await cell.drain()
    assert cell.released == Counter([1, 0, 1])


async def test_only_blocks_with_a_stable_payload_are_readable_from_the_queue():
    cell = Cell()
    cell.offer(0)
    record = block_record(1)
    cell.writer.offer(record)
    assert cell.writer.queued(block_key(0)) is None
    assert cell.writer.queued(block_key(1)) is record
    assert block_key(0) in cell.writer


async def test_a_tier_that_fails_is_left_alone_and_tried_again():
    cell = Cell()
    cell.error = TierUnavailableError("no room", tier="disk", reason="ENOSPC")
    for number in range(6):
        cell.offer(number)
        await cell.drain()
    assert cell.health.fault == "no room"
    assert not cell.health.is_good
    assert cell.writer.num_dropped == 6
    assert cell.gone == [block_key(number) for number in range(6)]
    cell.error = None
    cell.offer(6)
    await cell.drain()
    assert cell.written == []
    cell.now = 1.0
    cell.offer(7)
    await cell.drain()
    assert cell.written == [block_key(7)]
    assert cell.health.fault is None
    assert cell.health.is_good
    assert cell.released == Counter(range(8))


async def test_a_block_that_the_tier_cannot_take_is_no_fault_of_it():
    cell = Cell()
    cell.error = RecordTooLargeError("too large")
    for number in range(5):
        cell.offer(number)
        await cell.drain()
    assert cell.health.fault is None
    assert cell.health.is_good
    assert cell.writer.num_dropped == 5
    assert cell.released == Counter(range(5))


async def test_dropping_a_tenant_waits_for_a_write_under_way():
    cell = Cell()
    cell.may_go_on.clear()
    for number, tenant in ((0, "a"), (1, "b"), (2, "a")):
        cell.offer(number, tenant=tenant)
    task = asyncio.create_task(cell.writer.run())
    await asyncio.sleep(0)
    dropping = asyncio.create_task(cell.writer.drop_tenant("a"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(dropping), 0.01)
    assert cell.released == Counter([2])
    cell.may_go_on.set()
    assert await dropping == [block_key(0), block_key(2)]
    assert await cell.writer.drop_tenant("c") == []
    await cell.writer.wait_idle()
    assert cell.written == [block_key(0), block_key(1)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert cell.released == Counter([0, 1, 2])


async def test_close_releases_all_queued_blocks():
    cell = Cell()
    cell.may_go_on.clear()
    for number in range(3):
        cell.offer(number)
    task = asyncio.create_task(cell.writer.run())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    cell.writer.close()
    assert cell.released == Counter(range(3))
    assert cell.writer.queued_bytes == 0


async def test_run_ends_although_a_write_swallowed_the_cancellation():
    cell = Cell(max_queued_bytes=10 * SIZE)

    async def swallow(record):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        cell.written.append(record.key)
        return []

    cell.writer = TierWriter(swallow, cell.health, 10 * SIZE, cell.gone.append)
    cell.offer(0)
    cell.offer(1)
    task = asyncio.create_task(cell.writer.run())
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait([task])
    assert task.cancelled()
    assert cell.written == [block_key(0)]
