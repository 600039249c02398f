"""The connector to KV stores, against a scripted store over real gRPC."""

import asyncio
import os
from contextlib import aclosing

import pytest

from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError, WireError
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.get_stream import blocks_per_stream
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from support.fakes.kv_fake_store import FakeStore, storing

STALL = 0.3


def layout_of(num_bytes):
    group = CacheGroup(num_layers=2, block_size=16, bytes_per_block=num_bytes, dtype="float32")
    return BlockLayout(b"m" * 32, b"n" * 32, (group,))


def blocks_of(num_bytes, count, tenant=None):
    return [
        OutgoingBlock(os.urandom(16), tenant, memoryview(os.urandom(num_bytes)))
        for _ in range(count)
    ]


class Peer:
    """A store, a connector to it, and what they agreed on."""

    def __init__(self, store, connector, address, num_bytes):
        self.store = store
        self.connector = connector
        self.address = address
        self.num_bytes = num_bytes

    def blocks(self, count, tenant=None):
        return blocks_of(self.num_bytes, count, tenant)

    async def put(self, count):
        blocks = self.blocks(count)
        await self.connector.put(blocks)
        return blocks

    async def get(self, names, seconds=10.0):
        async with aclosing(self.connector.get(self.address, names, seconds)) as loaded:
            return [(block.name, bytes(block.payload), block.tier) async for block in loaded]


@pytest.fixture
async def peer(tmp_path):
    store, connector = FakeStore(), KvStoreConnector(stall_seconds=STALL)
    address = f"unix:{tmp_path}/s"
    await connector.register(layout_of(4096), [address])
    async with storing(store, address):
        yield Peer(store, connector, address, 4096)
        await connector.close()


async def big_peer(peer, num_bytes):
    await peer.connector.close()
    await peer.connector.register(layout_of(num_bytes), [peer.address])
    peer.num_bytes = num_bytes
    return peer


def contents(blocks, tier="memory"):
    return [(block.name, bytes(block.payload), tier) for block in blocks]


def damaged(reason):
    return metrics.DAMAGED_BLOCKS.labels(reason)._value.get()


async def test_what_is_put_is_got_in_the_order_asked_for(peer):
    blocks = await peer.put(5)
    blocks.reverse()
    assert await peer.get([block.name for block in blocks]) == contents(blocks)
    assert peer.store.layouts[0].groups[0].bytes_per_block == 4096


@pytest.mark.parametrize("num_bytes", [1 << 20, (5 << 19) + 8, 3 << 20])
async def test_blocks_of_several_chunks(peer, num_bytes):
    peer.store.tier = "disk"
    await big_peer(peer, num_bytes)
    blocks = await peer.put(3)
    assert await peer.get([block.name for block in blocks]) == contents(blocks, "disk")


async def test_chunks_wait_for_credits(peer):
    peer.store.window = 1
    blocks = await peer.put(6)
    assert list(peer.store.blocks) == [block.name for block in blocks]


@pytest.mark.parametrize(
    ("num_bytes", "count", "most_names"),
    [(4096, 2300, 1024), (1 << 20, 40, 32), (3 << 20, 12, 10), (17 << 20, 2, 1)],
)
async def test_a_long_load_is_several_streams(peer, num_bytes, count, most_names):
    """One stream is asked for a window of chunks, so no more than that is on its way."""
    await big_peer(peer, num_bytes)
    payload = memoryview(os.urandom(num_bytes))
    blocks = [OutgoingBlock(os.urandom(16), None, payload) for _ in range(count)]
    await peer.connector.put(blocks)
    names = [block.name for block in blocks]
    async with aclosing(peer.connector.get(peer.address, names, 20.0)) as loaded:
        await anext(loaded)
        assert peer.store.num_gets == 1
        assert [block.name async for block in loaded] == names[1:]
    assert peer.store.most_names == most_names
    assert peer.store.num_gets == -(-count // most_names)
    del peer.store.blocks[names[-1]]
    assert len(await peer.get(names, 20.0)) == count - 1
    del peer.store.blocks[names[0]]
    num_gets = peer.store.num_gets
    assert await peer.get(names) == []
    assert peer.store.num_gets == num_gets + 1


@pytest.mark.parametrize(
    ("num_bytes", "count"), [(4096, 1024), (1 << 20, 64), (3 << 20, 21), (65 << 20, 1)]
)
def test_a_stream_over_shared_memory_is_asked_for_more(num_bytes, count):
    assert blocks_per_stream(num_bytes, in_shared_memory=True) == count


async def test_each_tenant_is_announced_apart(peer):
    blocks = [*peer.blocks(2, "a"), *peer.blocks(1), *peer.blocks(2, "b"), *peer.blocks(1, "a")]
    names = await peer.connector.put(blocks)
    assert names == {block.name for block in blocks}
    assert peer.store.tenants == {block.name: block.tenant for block in blocks}


async def test_what_the_store_holds_is_not_sent(peer):
    blocks = await peer.put(3)
    more = peer.blocks(1)
    assert await peer.connector.put(blocks + more) == {b.name for b in blocks + more}
    assert peer.store.got_chunks == 4
    assert peer.store.num_puts == 1


async def test_what_the_store_declines_is_not_stored(peer):
    held = await peer.put(2)
    peer.store.fault = "declines"
    lacking = peer.blocks(3)
    assert await peer.connector.put(held + lacking) == {block.name for block in held}
    assert await peer.connector.put(lacking) == frozenset()
    assert peer.store.num_puts == 1
    peer.store.fault = ""
    assert await peer.connector.put(lacking) == {block.name for block in lacking}


async def test_a_load_ends_at_the_first_missing_block(peer):
    blocks = await peer.put(4)
    del peer.store.blocks[blocks[2].name]
    assert await peer.get([block.name for block in blocks]) == contents(blocks[:2])


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("flip", "chunk_checksum"),
        ("swap", "payload_checksum"),
        ("no_payload_checksum", "payload_checksum"),
    ],
)
async def test_damage_is_a_miss_and_counted(peer, fault, reason):
    blocks = await peer.put(3)
    before = damaged(reason)
    peer.store.fault = fault
    assert await peer.get([block.name for block in blocks]) == []
    assert damaged(reason) == before + 1
    peer.store.fault = ""
    assert await peer.get([block.name for block in blocks]) == contents(blocks)


@pytest.mark.parametrize("fault", ["order", "long", "foreign", "cut", "no_tier"])
async def test_a_store_that_breaks_the_contract_of_get(peer, fault):
    await big_peer(peer, 1 << 20)
    blocks = await peer.put(20)
    peer.store.fault = fault
    with pytest.raises(WireError):
        await peer.get([block.name for block in blocks])
    peer.store.fault = ""
    assert len(await peer.get([block.name for block in blocks])) == 20


@pytest.mark.parametrize("fault", ["unknown_wanted", "unknown_published", "declines_wanted"])
async def test_a_store_that_breaks_the_contract_of_put(peer, fault):
    peer.store.fault = fault
    with pytest.raises(WireError, match="names that were not sent"):
        await peer.put(2)
    peer.store.fault = ""
    assert len(await peer.put(2)) == 2


@pytest.mark.parametrize("fault", ["stop", "never_publish", "no_credit"])
async def test_a_store_that_does_not_answer_a_put(peer, fault):
    peer.store.fault = fault
    with pytest.raises(DeadlineError):
        async with asyncio.timeout(20):
            await peer.put(2)
    peer.store.fault = ""
    await peer.put(2)


async def test_no_chunk_is_sent_without_credit(peer):
    peer.store.fault = "no_more_credit"
    with pytest.raises(DeadlineError):
        await peer.put(peer.store.window + 3)
    assert peer.store.got_chunks == peer.store.window


async def test_a_stopped_store_ends_a_load_at_its_time(peer):
    blocks = await peer.put(1)
    peer.store.fault = "stop"
    with pytest.raises(DeadlineError):
        await peer.get([blocks[0].name], 0.2)


async def test_another_layout_is_refused_before_any_block(peer):
    peer.store.fault = "refuse_layout"
    with pytest.raises(PagewireError, match="another layout"):
        await peer.put(1)
    with pytest.raises(PagewireError, match="another layout"):
        await peer.get([bytes(16)])
    assert (peer.store.num_puts, peer.store.num_gets) == (0, 0)


async def test_other_stores_end_what_is_under_way(tmp_path):
    """Those who wait get an error, and are not cancelled themselves."""
    store, connector, address = FakeStore(), KvStoreConnector(20.0), f"unix:{tmp_path}/s"
    async with storing(store, address):
        await connector.register(layout_of(64), [address])
        blocks = blocks_of(64, 1)
        await connector.put(blocks)
        store.fault = "never_publish"
        putting = asyncio.create_task(connector.put(blocks_of(64, 1)))
        store.fault = "never_publish"
        async with asyncio.timeout(10):
            while store.got_chunks < 2:
                await asyncio.sleep(0.01)
        store.fault = "stop"
        getting = asyncio.ensure_future(anext(connector.get(address, [blocks[0].name], 20.0)))
        async with asyncio.timeout(10):
            while store.num_gets == 0:
                await asyncio.sleep(0.01)
        await connector.register(layout_of(64), ["unix:/elsewhere"])
        for task in (putting, getting):
            await asyncio.wait((task,), timeout=10)
            assert isinstance(task.exception(), UnavailableError)
        await connector.close()


async def test_an_unknown_address_is_refused(peer):
    with pytest.raises(WireError, match="not in the welcome"):
        async for _ in peer.connector.get("unix:/nowhere", [bytes(16)], 1.0):
            pass


async def test_a_load_that_is_left_ends_its_stream(peer):
    blocks = await peer.put(4)
    names = [block.name for block in blocks]
    peer.store.fault = "linger"
    async with aclosing(peer.connector.get(peer.address, names, 60.0)) as loaded:
        await anext(loaded)
    async with asyncio.timeout(10):
        while peer.store.ended_gets == 0:
            await asyncio.sleep(0.01)


async def test_a_store_that_comes_back_is_found_at_once(tmp_path):
    connector, address = KvStoreConnector(stall_seconds=STALL), f"unix:{tmp_path}/s"
    await connector.register(layout_of(64), [address])
    with pytest.raises(PagewireError):
        await connector.put(blocks_of(64, 1))
    ids = []
    for _ in range(3):
        store = FakeStore()
        async with storing(store, address):
            blocks = blocks_of(64, 2)
            assert await connector.put(blocks) == {block.name for block in blocks}
            names = [block.name for block in blocks]
            async with aclosing(connector.get(address, names, 5.0)) as loaded:
                assert [block.name async for block in loaded] == names
        ids.append(connector.store_id)
        assert ids[-1] == store.store_id
    assert len(set(ids)) == 3
    await connector.close()
