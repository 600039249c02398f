"""Blocks of a Get: in order, one ahead where that is worth it, and nothing is left held."""

import asyncio
import contextlib

import pytest

from pagewire_kvstore.blocks.types import StoreLayout
from pagewire_kvstore.streams.block_fetches import BlockFetches
from support.processes.store_server import name_of

LAYOUT = StoreLayout(b"L" * 16, (6, 3))


class Store:
    """Notes what is loaded and held. Blocks below `num_slow` are in a slow tier; the others are in
    memory up to `num_blocks`."""

    def __init__(self, num_slow, num_blocks):
        self.num_slow = num_slow
        self.num_blocks = num_blocks
        self.loaded, self.held, self.asked, self.missed = [], [], [], []
        self.gate = asyncio.Event()
        self.gate.set()

    def _number(self, key):
        return int.from_bytes(key.name, "big")

    def is_in_memory(self, key):
        return self.num_slow <= self._number(key) < self.num_blocks

    def holds(self, key):
        return self.is_in_memory(key)

    async def find(self, keys):
        self.asked.append(len(keys))
        return {key for key in keys if self._number(key) < self.num_blocks}

    def count_miss(self, key):
        self.missed.append(self._number(key))

    @contextlib.asynccontextmanager
    async def load(self, key):
        self.loaded.append((self._number(key), key.group))
        if not self.is_in_memory(key):
            await self.gate.wait()
        if self._number(key) >= self.num_blocks:
            yield None
            return
        self.held.append(key)
        try:
            yield key
        finally:
            self.held.remove(key)


def fetching(store, *numbers):
    return BlockFetches(store, LAYOUT, [name_of(number) for number in numbers])


def both(*numbers):
    return [(number, group) for number in numbers for group in (0, 1)]


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_at_most_one_block_is_prefetched():
    store = Store(4, 4)
    fetches = fetching(store, 0, 1, 2, 3)
    for number in range(4):
        stack, found = await fetches.next()
        await settled()
        # The one after it is there already, before anybody asks.
        assert store.loaded == both(*range(min(number + 2, 4)))
        assert [int.from_bytes(key.name, "big") for key in found] == [number, number]
        assert len(store.held) == (4 if number < 3 else 2)
        await stack.aclose()
    await fetches.close()
    assert store.held == []


async def test_blocks_in_memory_are_not_prefetched():
    store = Store(0, 4)
    fetches = fetching(store, 0, 1)
    stack, _ = await fetches.next()
    await settled()
    assert store.loaded == both(0)
    await stack.aclose()
    await fetches.close()


async def test_close_unpins_a_prefetched_block():
    store = Store(4, 4)
    fetches = fetching(store, 0, 1)
    stack, _ = await fetches.next()
    await settled()
    await stack.aclose()
    assert len(store.held) == 2
    await fetches.close()
    assert store.held == []


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_cancelled_reader_leaves_no_pins(is_late):
    store = Store(4, 4)
    fetches = fetching(store, 0, 1)
    stack, _ = await fetches.next()
    await stack.aclose()
    store.gate.clear()
    waiting = asyncio.create_task(fetches.next())
    await settled()
    if is_late:
        store.gate.set()
    waiting.cancel()
    await asyncio.wait((waiting,))
    await fetches.close()
    assert waiting.cancelled()
    assert store.held == []


async def test_absent_blocks_are_looked_up_once_and_counted_once_each():
    store = Store(1, 3)
    fetches = fetching(store, 0, 1, 2, 7, 8)
    await fetches.prepare()
    assert store.asked == [6]
    outcomes = []
    for _ in range(5):
        stack, found = await fetches.next()
        outcomes.append(found is not None)
        await stack.aclose()
    assert outcomes == [True, True, True, False, False]
    assert store.missed == [7, 8]
    assert store.loaded == both(0, 1, 2)


async def test_a_block_put_after_the_lookup_is_loaded():
    store = Store(0, 1)
    fetches = fetching(store, 0, 1)
    await fetches.prepare()
    store.num_blocks = 2
    for _ in range(2):
        stack, found = await fetches.next()
        assert found is not None
        await stack.aclose()
    assert store.missed == []
