"""Blocks through the memory of a store on the same host, and what makes it gRPC instead."""

import os

import pytest

from pagewire_shared.errors import WireError
from pagewire_worker.kv.kv_cache import CacheGroup
from pagewire_worker.offload import metrics
from pagewire_worker.offload.connector import BlockLayout, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from support.fakes.kv_fake_store import FakeStore, storing

NUM_BYTES = 8192
LAYOUT = BlockLayout(b"m" * 32, b"n" * 32, (CacheGroup(2, 16, NUM_BYTES, "float32"),))


@pytest.fixture
async def store(tmp_path):
    made = FakeStore(arena=tmp_path / "blocks.arena")
    made.arena.write_bytes(bytes(16 * NUM_BYTES))
    made.address = f"unix:{tmp_path}/s"
    async with storing(made, made.address):
        yield made


@pytest.fixture
async def connector(store):
    made = KvStoreConnector(stall_seconds=2.0)
    await made.register(LAYOUT, [store.address])
    yield made
    await made.close()


def blocks_of(count):
    return [
        OutgoingBlock(os.urandom(16), None, memoryview(os.urandom(NUM_BYTES))) for _ in range(count)
    ]


async def got(connector, store, blocks):
    names = [block.name for block in blocks]
    return [(b.name, bytes(b.payload)) async for b in connector.get(store.address, names, 10.0)]


def contents(blocks):
    return [(block.name, bytes(block.payload)) for block in blocks]


async def test_blocks_go_both_ways_without_chunks(connector, store):
    blocks = blocks_of(5)
    assert await connector.put(blocks) == {block.name for block in blocks}
    assert await got(connector, store, blocks) == contents(blocks)
    assert (store.got_chunks, store.sent_chunks, store.sent_shared) == (0, 0, 5)
    assert store.arena.read_bytes()[:NUM_BYTES] == bytes(blocks[0].payload)


async def test_some_blocks_shared_and_some_in_chunks(connector, store):
    blocks = blocks_of(4)
    await connector.put(blocks)
    for block in blocks[1::2]:
        del store.reserved[block.name]
    assert await got(connector, store, blocks) == contents(blocks)
    assert (store.sent_chunks, store.sent_shared) == (2, 2)


@pytest.mark.parametrize("misfit", [{"boot_id": "another"}, {"inode_error": 1}, {"arena": "link"}])
async def test_memory_of_another_host_or_file_is_not_used(connector, store, misfit, tmp_path):
    await connector.close()
    for field, value in misfit.items():
        setattr(store, field, value)
    if store.arena == "link":
        store.arena = tmp_path / "link.arena"
        store.arena.symlink_to(tmp_path / "blocks.arena")
    await connector.register(LAYOUT, [store.address])
    blocks = blocks_of(3)
    await connector.put(blocks)
    assert await got(connector, store, blocks) == contents(blocks)
    assert (store.got_chunks, store.sent_chunks, store.sent_shared) == (3, 3, 0)


async def test_damage_in_the_memory_is_a_miss(connector, store):
    blocks = blocks_of(3)
    await connector.put(blocks)
    data = bytearray(store.arena.read_bytes())
    data[NUM_BYTES + 17] ^= 4
    with store.arena.open("r+b") as file:
        file.write(data)
    counter = metrics.DAMAGED_BLOCKS.labels("shared_checksum")
    before = counter._value.get()
    assert await got(connector, store, blocks) == contents(blocks[:1])
    assert counter._value.get() == before + 1


async def test_offsets_outside_break_the_stream(connector, store):
    store.offset_error = 15 * NUM_BYTES + 1
    with pytest.raises(WireError, match="outside the shared memory"):
        await connector.put(blocks_of(1))
    store.offset_error = 0
    store.reserved.clear()
    blocks = blocks_of(1)
    await connector.put(blocks)
    store.reserved[blocks[0].name] = (2**64 - 1, NUM_BYTES)
    with pytest.raises(WireError, match="outside the shared memory"):
        await got(connector, store, blocks)
