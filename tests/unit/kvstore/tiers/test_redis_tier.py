"""The Redis tier over a real Redis: shared, damaged, full, stopped and killed."""

import asyncio
import contextlib
import random
from dataclasses import replace

import pytest
import redis.asyncio

from pagewire_kvstore.blocks.event_log import BlockChange, EventLog
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.tiers.errors import TierUnavailableError
from pagewire_kvstore.tiers.memory import MemoryTier
from pagewire_kvstore.tiers.redis import tier as redis_tier
from pagewire_kvstore.tiers.redis.tier import RedisTier
from pagewire_kvstore.tiers.redis.values import RedisValues, value_name
from pagewire_shared.kv.extents import GRANULE_BYTES
from support.processes.disk_blocks import block_key, block_payload, block_record
from support.processes.redis_server import RedisServer

CALL_SECONDS = 10.0
"""A busy machine is no fault of Redis."""

SHORT_CALL_SECONDS = 0.3
TTL_SECONDS = 1000
GONE = "pagewire:kv:quarantine:*"


@pytest.fixture
def server(require_tool, tmp_path):
    program = require_tool("redis-server", "make tools")
    server = RedisServer(program, tmp_path)
    yield server.start()
    server.close()


@pytest.fixture(autouse=True)
def quick_probes(monkeypatch):
    monkeypatch.setattr(redis_tier, "PROBE_SECONDS", 0.02)


class Cell:
    def __init__(self, url, memory_bytes, call_seconds):
        values = RedisValues(url, call_seconds=call_seconds)
        self.redis = RedisTier(values, ttl_seconds=TTL_SECONDS, max_queued_bytes=1 << 20)
        self.events = EventLog(10_000)
        memory = MemoryTier(memory_bytes, lambda _: None, lambda _: False)
        self.store = BlockStore(memory, [self.redis], self.events)

    async def found(self, number):
        async with self.store.load(block_key(number)) as loaded:
            if loaded is None:
                return None
            # Whole and right, or not at all.
            assert bytes(loaded.record.payload) == block_payload(number)
            return loaded.tier

    async def put(self, *numbers):
        for number in numbers:
            self.store.put([block_record(number)])
        await self.store.wait_written()

    @property
    def state(self):
        return self.store.states()[1]

    def announced(self):
        names = set()
        for event in self.events.since(1):
            change = names.update if event.change is BlockChange.STORED else names.difference_update
            change(event.names)
        assert names == set(self.store.names())
        return names


@contextlib.asynccontextmanager
async def running(server, *, memory_bytes=GRANULE_BYTES, call_seconds=CALL_SECONDS):
    cell = Cell(server.url, memory_bytes, call_seconds)
    task = asyncio.create_task(cell.store.run())
    try:
        yield cell
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cell.store.close()


@contextlib.asynccontextmanager
async def client(server):
    async with redis.asyncio.Redis.from_url(server.url) as connected:
        yield connected


async def until(holds):
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


def names(*numbers):
    return {block_key(number).name for number in numbers}


async def test_what_one_store_puts_another_finds(server):
    async with running(server) as one, running(server) as other:
        await one.put(0, 1, 2)
        # Memory holds one block.
        assert [await one.found(number) for number in (2, 0, 1)] == ["memory", "redis", "redis"]
        assert await other.found(0) == "redis"
        assert await other.found(0) == "memory"
        assert await other.found(9) is None
        # It may have found the others by itself, before or after.
        assert names(0) <= other.announced() <= names(0, 1, 2)
        assert one.announced() == names(0, 1, 2)
        assert await other.store.find([block_key(number) for number in (0, 1, 9)]) == {
            block_key(0),
            block_key(1),
        }
        assert (other.state.num_hits, other.state.num_misses) == (1, 1)
    async with running(server) as later:
        await until(lambda: len(later.store.names()) == 3)
        assert later.announced() == names(0, 1, 2)
        assert later.store.holds(block_key(1))
        # Asked for beside the search, so it may come after what was found.
        await until(lambda: later.state.used_bytes > 0)
        assert later.state.num_blocks == 3


async def test_a_block_that_redis_evicted_is_a_miss_and_logged_as_removed(server):
    async with running(server) as cell, client(server) as direct:
        await cell.put(0, 1)
        assert 0 < await direct.ttl(value_name(block_key(0))) <= TTL_SECONDS
        await direct.expire(value_name(block_key(0)), 10)
        assert await cell.found(0) == "redis"
        assert await direct.ttl(value_name(block_key(0))) > 10
        await direct.delete(value_name(block_key(1)))
        assert cell.announced() == names(0, 1)
        assert await cell.found(1) is None
        assert cell.announced() == names(0)
        assert cell.state.fault is None
        assert (cell.state.num_faults, cell.state.num_corrupt) == (0, 0)


async def test_a_tenant_is_deleted_also_from_other_stores_blocks(server):
    async with running(server) as one, running(server) as other:
        await one.put(0, 1)
        one.store.put([replace(block_record(2), tenant="other")])
        await other.put(3)
        await one.store.wait_written()
        async with client(server) as direct:
            await direct.set(value_name(block_key(5)), b"no record")
        # What a store has in memory is its own.
        assert await one.store.delete_tenant("t") == 3
        assert [await one.found(number) for number in range(4)] == [None, None, "memory", None]
        assert await other.found(2) == "redis"
        assert await one.store.delete_tenant("t") == 0


DAMAGES = ("flip", "cut", "empty", "grow", "swap")


async def test_nothing_damaged_is_served(server):
    dice = random.Random(5)
    num_damaged = dict.fromkeys(DAMAGES, 0)
    async with running(server) as cell, client(server) as direct:
        await cell.put(*range(20))
        whole = {n: await direct.get(value_name(block_key(n))) for n in range(20)}
        before = {number: data for number, data in whole.items() if data}
        assert len(before) == 20
        for _ in range(1500):
            number, other = dice.sample(range(20), 2)
            damage = dice.choice(DAMAGES)
            data = bytearray(before[number])
            if damage == "flip":
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            elif damage == "cut":
                del data[dice.randrange(1, len(data)) :]
            elif damage == "empty":
                data.clear()
            elif damage == "grow":
                data += dice.randbytes(dice.randrange(1, 100))
            else:
                data[:] = before[other]
            cell.store._memory.remove(block_key(number))
            await direct.set(value_name(block_key(number)), bytes(data))
            num_damaged[damage] += 1
            assert await cell.found(number) is None, damage
            assert cell.state.num_corrupt == sum(num_damaged.values())
            assert not await direct.exists(value_name(block_key(number)))
            await direct.set(value_name(block_key(number)), before[number])
        assert all(num_damaged.values())
        assert 0 < len(await direct.keys(GONE)) <= 20
        assert all([0 < await direct.ttl(name) <= 3600 for name in await direct.keys(GONE)])
        assert [await cell.found(number) for number in range(20)] == ["redis"] * 20


async def test_a_value_of_another_type_is_put_aside(server):
    async with running(server) as cell, client(server) as direct:
        await direct.lpush(value_name(block_key(0)), "x")
        assert await cell.found(0) is None
        assert cell.state.num_corrupt == 1
        assert len(await direct.keys(GONE)) == 1
        assert cell.state.fault is None


async def test_a_full_redis_is_read_and_tried_again(server):
    async with running(server) as cell, client(server) as direct:
        await cell.put(0)
        await direct.config_set("maxmemory", 1)
        await cell.put(*range(1, 8))
        assert "maxmemory" in cell.store.faults()["redis"]
        assert cell.state.num_faults >= 3
        assert cell.redis._writer.num_dropped == 7
        assert await cell.found(0) == "redis"
        assert await cell.found(2) is None
        await direct.config_set("maxmemory", 0)
        await until(lambda: cell.store.faults() == {})
        await cell.put(8, 9)
        assert await cell.found(8) == "redis"


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_a_redis_that_does_not_answer_costs_a_few_deadlines(server, how):
    async with running(server, call_seconds=SHORT_CALL_SECONDS) as cell:
        await cell.put(0, 1)
        (server.stop if how == "stopped" else server.kill)()
        # Both at a time, as many streams would.
        tiers = await asyncio.gather(*(cell.found(0) for _ in range(20)))
        assert tiers == [None] * 20
        while "redis" not in cell.store.faults() or cell.redis._read_health.is_good:
            await cell.found(0)
        # A deadline each would take minutes.
        async with asyncio.timeout(20):
            for number in range(2000):
                assert await cell.found(100 + number) is None
                cell.store.put([block_record(number % 50)])
        assert not cell.store.holds(block_key(60))
        with pytest.raises(TierUnavailableError):
            await cell.store.delete_tenant("t")
        if how == "stopped":
            server.go_on()
        else:
            server.start()
        await until(lambda: cell.store.faults() == {})
        async with asyncio.timeout(20):
            while await cell.found(70) != "redis":
                await cell.put(70, 71)
        # Answers that came too late are nobody's.
        for number in (70, 71, 70, 71):
            await cell.found(number)
        assert cell.state.num_corrupt == 0


async def test_blocks_of_other_stores_are_announced(server, monkeypatch):
    monkeypatch.setattr(redis_tier, "LEARN_SECONDS", 0.02)
    async with running(server) as one, running(server) as other:
        await one.put(0, 1)
        await until(lambda: other.announced() == names(0, 1))
        async with client(server) as direct:
            await direct.flushdb()
        assert await other.found(1) is None
        assert other.announced() == names(0)
        await one.put(2)
        await until(lambda: other.announced() == names(0, 2))


async def test_a_redis_that_comes_later_than_the_store(require_tool, tmp_path):
    program = require_tool("redis-server", "make tools")
    server = RedisServer(program, tmp_path)
    async with running(server) as cell:
        await cell.put(0, 1)
        await until(lambda: "redis" in cell.store.faults())
        server.start()
        try:
            await until(lambda: cell.store.faults() == {})
            await cell.put(2, 3)
            assert await cell.found(2) == "redis"
        finally:
            server.close()


async def test_a_redis_user_with_get_and_set_only_is_enough(server):
    async with client(server) as direct:
        await direct.execute_command(
            "ACL", "SETUSER", "default", "-@all", "+getrange", "+expire", "+set", "+exists"
        )
    async with running(server) as cell:
        await cell.put(0, 1)
        await until(lambda: cell.state.num_faults >= 2)
        for _ in range(20):
            assert await cell.found(0) == "redis"
            assert await cell.found(1) == "redis"
        assert cell.store.faults() == {}
        with pytest.raises(TierUnavailableError, match="scan"):
            await cell.store.delete_tenant("t")
