"""The connector to LMCache against a scripted server: blocks are found by another worker, and a
server that fails, hangs or lies costs a load at most."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError, WireError
from pagewire_worker.connectors.lmcache import MAX_LOADS, MAX_PUTS, LmcacheConnector
from pagewire_worker.connectors.lmcache_settings import LmcacheSettings
from pagewire_worker.connectors.lmcache_wire import KEY_BYTES, EntryCommand, decode, encode, key_of
from support.fakes.damaged_entries import CORRUPTIONS, LAYOUT, Block, random_block
from support.fakes.outside_blocks import found, put
from support.fakes.scripted_lmcache import ScriptedLmcache

CHANCE = random.Random(6)


@asynccontextmanager
async def worker(server: ScriptedLmcache) -> AsyncIterator[LmcacheConnector]:
    connector = LmcacheConnector(LmcacheSettings("127.0.0.1", server.port))
    await connector.register(LAYOUT, (connector.outside_store,))
    try:
        yield connector
    finally:
        await connector.close()


def blocks_of(number: int) -> list[Block]:
    return [random_block(CHANCE) for _ in range(number)]


def right(blocks: Sequence[Block]) -> list[tuple[bytes, bytes, str]]:
    return [(one.name, one.payload, "lmcache") for one in blocks]


async def test_a_fresh_worker_finds_what_another_put() -> None:
    blocks = blocks_of(300)
    async with ScriptedLmcache() as server:
        async with worker(server) as first:
            assert await put(first, blocks) == {one.name for one in blocks}
            num_commands = len(server.commands)
            assert await put(first, blocks) == {one.name for one in blocks}
            assert len(server.commands) == num_commands, "what is there is not sent again"
        async with worker(server) as fresh:
            assert await found(fresh, [*blocks, *blocks_of(2)]) == right(blocks)
            assert await found(fresh, blocks_of(3)) == []


@pytest.mark.parametrize("kind", CORRUPTIONS)
async def test_a_damaged_entry_is_missing_until_it_is_put_again(kind: str) -> None:
    blocks = blocks_of(5)
    async with ScriptedLmcache() as server, worker(server) as connector:
        await put(connector, blocks)
        key = next(key for key in server.entries if blocks[2].name.hex() in key)
        server.entries[key] = bytes(CORRUPTIONS[kind](blocks[2], blocks[4], CHANCE))
        assert await found(connector, blocks) == right(blocks[:2])
        assert await put(connector, blocks) == {one.name for one in blocks}
        assert await found(connector, blocks) == right(blocks)


async def test_a_server_that_hangs_costs_a_question() -> None:
    async with ScriptedLmcache() as server, worker(server) as connector:
        server.hangs = True
        for _ in range(3):
            started = time.monotonic()
            with pytest.raises(DeadlineError):
                await found(connector, blocks_of(2))
            assert time.monotonic() - started < 1
        server.hangs = False
        blocks = blocks_of(2)
        await put(connector, blocks)
        assert await found(connector, blocks) == right(blocks)


async def test_a_connection_that_ends_within_a_block_yields_nothing_of_it() -> None:
    blocks = blocks_of(3)
    async with ScriptedLmcache() as server, worker(server) as connector:
        await put(connector, blocks)
        server.cuts_after = 100
        with pytest.raises(UnavailableError):
            await found(connector, blocks)
        server.cuts_after = None
        assert await found(connector, blocks) == right(blocks)


async def test_an_answer_outside_the_protocol_ends_the_connection() -> None:
    async with ScriptedLmcache() as server, worker(server) as connector:
        server.says = 7
        with pytest.raises(WireError, match="answers 7"):
            await found(connector, blocks_of(1))
        server.says = None
        assert await found(connector, blocks_of(1)) == []
        assert server.num_connections == 2


async def test_a_server_that_ends_is_used_again_when_it_is_back() -> None:
    blocks = blocks_of(2)
    async with ScriptedLmcache() as server, worker(server) as connector:
        await put(connector, blocks)
        before = connector.store_id
        await server.__aexit__()
        with pytest.raises(PagewireError):
            await found(connector, blocks_of(2))
        assert connector.store_id != before
        await server.__aenter__()
        assert await found(connector, blocks) == right(blocks)


async def test_connections_are_bounded_and_used_again() -> None:
    blocks = [blocks_of(4) for _ in range(12)]
    async with ScriptedLmcache() as server, worker(server) as connector:
        await asyncio.gather(*(put(connector, some) for some in blocks))
        loads = await asyncio.gather(*(found(connector, some) for some in blocks))
        assert loads == [right(some) for some in blocks]
        assert server.num_connections <= MAX_LOADS + MAX_PUTS


def test_a_key_fits_its_field_and_names_layout_and_block() -> None:
    key = key_of(b"\x01" * 16, b"\xff" * 16)
    model, world_size, rank, hash_text, dtype = key.split("@")
    assert (model, world_size, rank, dtype) == ("pagewire-" + "01" * 16, "1", "0", "uint8")
    assert int(hash_text, 16) == 2**128 - 1
    assert len(key) <= KEY_BYTES
    assert len(encode(EntryCommand.PUT, key, 5)) == 186


def test_an_answer_is_decoded_as_the_server_sends_it() -> None:
    with pytest.raises(WireError):
        decode(bytes(36))
