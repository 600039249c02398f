"""Calls that have not begun when their channel is closed: none waits out its deadline."""

import asyncio
import os
from contextlib import aclosing

import pytest

from pagewire_shared.errors import DeadlineError, UnavailableError
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.offload.kv_store_link import OpeningCalls
from support.fakes.kv_fake_store import FakeStore, storing

LONG_SECONDS = 300.0
PATIENCE_SECONDS = 20.0


async def wait_long(calls, seconds=LONG_SECONDS):
    async with calls.opening(seconds):
        await asyncio.sleep(2 * LONG_SECONDS)


async def test_a_closed_channel_ends_all_that_wait():
    calls = OpeningCalls()
    tasks = [asyncio.create_task(wait_long(calls)) for _ in range(3)]
    await asyncio.sleep(0)
    calls.end()
    async with asyncio.timeout(PATIENCE_SECONDS):
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ends] == [UnavailableError] * 3


async def test_who_waits_too_long_is_told_so():
    with pytest.raises(DeadlineError, match=r"took no request for 0.01 s"):
        await wait_long(OpeningCalls(), 0.01)


async def test_what_has_begun_is_left_alone():
    calls = OpeningCalls()
    async with calls.opening(LONG_SECONDS):
        pass
    calls.end()
    async with calls.opening(LONG_SECONDS):
        await asyncio.sleep(0)


async def test_a_cancelled_one_is_cancelled():
    calls = OpeningCalls()
    task = asyncio.create_task(wait_long(calls))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("turns", range(12))
async def test_no_load_waits_over_a_channel_that_another_one_closed(tmp_path, turns):
    group = CacheGroup(num_layers=2, block_size=16, bytes_per_block=4096, dtype="float32")
    connector, address = KvStoreConnector(stall_seconds=PATIENCE_SECONDS), f"unix:{tmp_path}/s"
    await connector.register(BlockLayout(b"m" * 32, b"n" * 32, (group,)), [address])
    block = OutgoingBlock(os.urandom(16), None, memoryview(os.urandom(4096)))

    async def load():
        async with aclosing(connector.get(address, [block.name], LONG_SECONDS)) as loaded:
            return [one.name async for one in loaded]

    async with storing(FakeStore(), address):
        await connector.put([block])
        assert await load() == [block.name]
        loads = [asyncio.create_task(load()) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await connector._get_links[address]._hang_up()
        async with asyncio.timeout(PATIENCE_SECONDS):
            ends = await asyncio.gather(*loads, return_exceptions=True)
        await connector.close()
    for end in ends:
        assert isinstance(end, UnavailableError) or end == [block.name]
