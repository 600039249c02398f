"""Blocks that a store and its Redis lack cost a Get one round trip together, and are counted."""

import asyncio

import pytest

from pagewire_kvstore.tiers.redis import values as redis_values
from pagewire_kvstore.tiers.redis.tier import RedisTier
from pagewire_kvstore.tiers.redis.values import RedisValues
from support.processes.redis_server import RedisServer
from support.processes.store_server import layout, payload_of, store_server, until

SHAPE = layout(1000)


@pytest.fixture
def redis(require_tool, tmp_path):
    program = require_tool("redis-server", "make tools")
    server = RedisServer(program, tmp_path)
    yield server.start()
    server.close()


def counting(monkeypatch, *names):
    """Return the list to which calls of a Redis are noted from now on."""
    calls = []

    def count(name):
        call = getattr(RedisValues, name)

        def counted(values, *args):
            calls.append(name)
            return call(values, *args)

        monkeypatch.setattr(RedisValues, name, counted)

    for name in names:
        count(name)
    return calls


async def test_absent_blocks_are_looked_up_once(redis, monkeypatch):
    async with store_server(redis=redis.url) as one, store_server(redis=redis.url) as other:
        await until(lambda: other.store.states()[1].used_bytes > 0)
        await one.put(SHAPE, 1, 2)
        await one.store.wait_written()
        calls = counting(monkeypatch, "get", "exist")
        parts, missing = await other.get(SHAPE, 1, *range(10, 40), 2)
        assert parts == {(number, 0): payload_of(number, 1000) for number in (1, 2)}
        assert missing == list(range(10, 40))
        assert calls == ["exist", "get", "get"]
        memory, tier = other.store.states()
        assert (memory.num_hits, memory.num_misses) == (0, 32)
        assert (tier.num_hits, tier.num_misses) == (2, 30)
        # What is here needs no question.
        assert (await other.get(SHAPE, 1, 2))[1] == []
        assert calls == ["exist", "get", "get"]


async def test_gets_of_one_block_at_the_same_time_are_one_read(redis, monkeypatch):
    async with store_server(redis=redis.url) as one, store_server(redis=redis.url) as other:
        await one.put(SHAPE, 1)
        await one.store.wait_written()
        calls, may_go_on = counting(monkeypatch, "get"), asyncio.Event()
        get = RedisValues.get

        async def get_slowly(values, *args):
            await may_go_on.wait()
            return await get(values, *args)

        monkeypatch.setattr(RedisValues, "get", get_slowly)
        gets = [asyncio.create_task(other.get(SHAPE, 1)) for _ in range(5)]
        reads = other.store._loads._reads
        await until(lambda: [read.num_waiting for read in reads.values()] == [5])
        may_go_on.set()
        assert await asyncio.gather(*gets) == [({(1, 0): payload_of(1, 1000)}, [])] * 5
        assert calls == ["get"]
        assert reads == {}


async def test_a_redis_that_does_not_answer_counts_no_misses(redis, monkeypatch):
    monkeypatch.setattr(redis_values, "CALL_SECONDS", 0.3)
    async with store_server(redis=redis.url) as server:
        await until(lambda: server.store.states()[1].used_bytes > 0)
        redis.kill()
        assert await server.get(SHAPE, 5, 6) == ({}, [5, 6])
        memory, tier = server.store.states()
        assert (memory.num_misses, tier.num_misses) == (2, 0)


@pytest.mark.parametrize("num_turns", [0, 3, 5, 8, 12, 20])
async def test_a_store_ends_while_it_connects(redis, num_turns):
    tier = RedisTier(RedisValues(redis.url), ttl_seconds=10, max_queued_bytes=1000)
    running = asyncio.create_task(tier.run())
    for _ in range(num_turns):
        await asyncio.sleep(0)
    running.cancel()
    _, pending = await asyncio.wait((running,), timeout=10)
    running.cancel()
    assert not pending
