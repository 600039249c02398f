"""Loads from two stores over real gRPC, one of which does something wrong: the other one brings the
blocks, sealed or not."""

import os
from contextlib import AsyncExitStack

import pytest
from unit.worker.offload.test_kv_store_client import layout_of

from pagewire_shared.kv.copies import BlockCopies, rank_stores
from pagewire_shared.kv.load import LoadOrder, LoadOutcome
from pagewire_worker.offload.connector import BlockPlacement, OutgoingBlock
from pagewire_worker.offload.kv_store_client import KvStoreConnector
from pagewire_worker.offload.sealed_connector import SealedConnector
from pagewire_worker.offload.spread_reader import SpreadReader
from support.fakes.kv_fake_store import FakeStore, storing

NUM_BLOCKS = 6
STRIPE = 5
FAULTS = ("flip", "order", "long", "cut", "foreign", "no_tier", "missing_all", "end", "stop")


class Pair:
    """Two stores that have the same blocks, and a connector to both."""

    def __init__(self, connector, addresses):
        self.connector, self.addresses = connector, addresses
        self.stores = [FakeStore() for _ in addresses]
        self.payloads = {os.urandom(16): os.urandom(4096) for _ in range(NUM_BLOCKS)}

    async def put(self, num_copies=2):
        placement = BlockPlacement(STRIPE, num_copies)
        return await self.connector.put(
            [
                OutgoingBlock(name, None, memoryview(payload), placement)
                for name, payload in self.payloads.items()
            ]
        )

    async def load(self, seconds=4.0):
        """Return what came, and how each store ended."""
        copies = BlockCopies(tuple(self.addresses), (0b11,) * NUM_BLOCKS)
        order = LoadOrder(
            load_id=1,
            store=self.addresses[0],
            names=tuple(self.payloads),
            blocks=range(NUM_BLOCKS),
            timeout_ms=int(1000 * seconds),
            copies=copies,
        )
        reader = SpreadReader(order, copies, self.connector)
        came = {block.name: bytes(block.payload) async for block in reader.blocks()}
        return came, [part.outcome for part in reader.parts(LoadOutcome.LATE)]


@pytest.fixture(params=["plain", "sealed"])
async def pair(request, tmp_path):
    connector = KvStoreConnector(stall_seconds=2.0)
    if request.param == "sealed":
        connector = SealedConnector(connector, [b"k" * 32])
    addresses = [f"unix:{tmp_path}/{number}" for number in range(2)]
    made = Pair(connector, addresses)
    async with AsyncExitStack() as stack:
        for store, address in zip(made.stores, addresses, strict=True):
            await stack.enter_async_context(storing(store, address))
        await connector.register(layout_of(4096), addresses)
        yield made
        await connector.close()


async def test_copies_are_put_and_loaded_from_the_first_store(pair):
    assert await pair.put() == set(pair.payloads)
    assert [len(store.blocks) for store in pair.stores] == [NUM_BLOCKS] * 2
    came, outcomes = await pair.load()
    assert came == pair.payloads
    assert outcomes == [LoadOutcome.COMPLETE]
    assert pair.stores[1].num_gets == 0


@pytest.mark.parametrize("fault", FAULTS)
async def test_the_other_store_brings_what_one_does_not(pair, fault):
    await pair.put()
    pair.stores[0].fault = fault
    came, outcomes = await pair.load()
    assert came == pair.payloads
    assert outcomes[0] is not LoadOutcome.COMPLETE
    assert outcomes[1] is LoadOutcome.COMPLETE


async def test_one_damaged_block_costs_one_call_to_the_other_store(pair):
    await pair.put()
    name = list(pair.payloads)[3]
    payload = pair.stores[0].blocks[name]
    pair.stores[0].blocks[name] = bytes([payload[0] ^ 1]) + payload[1:]
    came, outcomes = await pair.load()
    assert came == pair.payloads
    assert outcomes == [LoadOutcome.MISSING, LoadOutcome.COMPLETE]
    assert (pair.stores[0].num_gets, pair.stores[1].num_gets) == (1, 1)


@pytest.mark.parametrize("fault", ["stop", "never_publish", "unknown_wanted", "no_credit", "end"])
async def test_a_put_goes_to_the_other_store(pair, fault):
    first = pair.addresses.index(rank_stores(STRIPE, frozenset(pair.addresses))[0])
    pair.stores[first].fault = fault
    assert await pair.put(num_copies=1) == set(pair.payloads)
    assert not pair.stores[first].blocks
    assert len(pair.stores[1 - first].blocks) == NUM_BLOCKS
