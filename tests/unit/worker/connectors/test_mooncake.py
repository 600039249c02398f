"""The connector to Mooncake against a scripted client: blocks are found by another worker, and a
store that fails, hangs or lies costs a load at most."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError
from pagewire_worker.connectors import mooncake
from pagewire_worker.connectors.mooncake import BUFFER_BYTES, MooncakeConnector
from pagewire_worker.connectors.mooncake_settings import MooncakeSettings
from pagewire_worker.offload.blocking_calls import MAX_CALLS
from pagewire_worker.offload.connector import OutgoingBlock
from support.fakes.damaged_entries import CORRUPTIONS, LAYOUT, Block, random_block
from support.fakes.outside_blocks import found, put
from support.fakes.scripted_mooncake import ScriptedStore

SETTINGS = MooncakeSettings(master_server_address="master:50051")
CHANCE = random.Random(5)


@asynccontextmanager
async def worker(store: ScriptedStore) -> AsyncIterator[MooncakeConnector]:
    connector = MooncakeConnector(SETTINGS, store.client)
    await connector.register(LAYOUT, (connector.outside_store,))
    try:
        yield connector
    finally:
        await connector.close()


def blocks_of(number: int) -> list[Block]:
    return [random_block(CHANCE) for _ in range(number)]


def right(blocks: Sequence[Block]) -> list[tuple[bytes, bytes, str]]:
    return [(one.name, one.payload, "mooncake") for one in blocks]


async def test_a_fresh_worker_finds_what_another_put() -> None:
    store, blocks = ScriptedStore(), blocks_of(20)
    async with worker(store) as first:
        assert await put(first, blocks) == {one.name for one in blocks}
        # What is known to be there is not sent again.
        num_calls = len(store.calls)
        assert await put(first, blocks) == {one.name for one in blocks}
        assert len(store.calls) == num_calls
    async with worker(store) as fresh:
        assert await found(fresh, [*blocks, *blocks_of(2)]) == right(blocks)
        assert await found(fresh, blocks_of(3)) == []
    assert store.num_closed == store.num_clients == 2
    assert all(key.startswith("pagewire/") for key in store.entries)


async def test_many_blocks_go_in_pieces_of_a_buffer_and_are_asked_for_in_batches() -> None:
    store = ScriptedStore()
    per_piece = BUFFER_BYTES // (LAYOUT.bytes_per_block + 64)
    blocks = blocks_of(per_piece + 10)
    async with worker(store) as connector:
        await put(connector, blocks)
    async with worker(store) as fresh:
        assert await found(fresh, blocks) == right(blocks)
    assert [call for call in store.calls if call[0] == "put"] == [("put", per_piece), ("put", 10)]
    assert ("exist", 256) in store.calls
    assert ("get", per_piece) in store.calls


async def test_presence_is_asked_once() -> None:
    store, blocks = ScriptedStore(), blocks_of(4)
    async with worker(store) as connector:
        await put(connector, blocks[:2])
        for _ in range(3):
            assert await found(connector, blocks) == right(blocks[:2])
    assert [call for call in store.calls if call[0] == "exist"] == [("exist", 2)]


@pytest.mark.parametrize("kind", CORRUPTIONS)
async def test_a_damaged_entry_is_missing_and_makes_room_for_a_good_one(kind: str) -> None:
    store, blocks = ScriptedStore(), blocks_of(5)
    async with worker(store) as connector:
        await put(connector, blocks)
        key = next(key for key in store.entries if key.endswith(blocks[2].name.hex()))
        entry = CORRUPTIONS[kind](blocks[2], blocks[4], CHANCE)
        store.entries[key] = bytes(entry)
        assert await found(connector, blocks) == right(blocks[:2])
        end = time.monotonic() + 5
        while key in store.entries and time.monotonic() < end:
            await asyncio.sleep(0.005)
        assert await put(connector, blocks) == {one.name for one in blocks}
        assert await found(connector, blocks) == right(blocks)


async def test_a_full_store_keeps_what_it_has() -> None:
    store, blocks = ScriptedStore(), blocks_of(4)
    store.room = 2
    async with worker(store) as connector:
        assert await put(connector, blocks) == {one.name for one in blocks[:2]}
        assert await found(connector, blocks) == right(blocks[:2])
        assert await put(connector, blocks_of(2)) == frozenset()


async def test_errors_fail_a_put_and_a_load_and_change_the_id_of_the_store() -> None:
    store, blocks = ScriptedStore(), blocks_of(2)
    async with worker(store) as connector:
        before = connector.store_id
        store.error = -900
        with pytest.raises(UnavailableError, match="error -900"):
            await put(connector, blocks)
        with pytest.raises(UnavailableError, match="error -900"):
            await found(connector, blocks)
        assert connector.store_id != before
        store.error = 0
        await put(connector, blocks)
        assert await found(connector, blocks) == right(blocks)


async def test_a_master_that_hangs_costs_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mooncake, "ASK_SECONDS", 0.05)
    store, blocks = ScriptedStore(), blocks_of(2)
    async with worker(store) as connector:
        await put(connector, blocks_of(1))
        store.gate.clear()
        for _ in range(MAX_CALLS + 2):
            started = time.monotonic()
            with pytest.raises(PagewireError):
                await found(connector, blocks)
            assert time.monotonic() - started < 0.5
        store.gate.set()
        await asyncio.sleep(0.05)
        await put(connector, blocks)
        assert await found(connector, blocks) == right(blocks)


async def test_a_late_answer_comes_into_no_buffer_that_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Buffers of calls that hang stay with them; when all hang, a load fails at once."""
    monkeypatch.setattr(mooncake, "ASK_SECONDS", 5.0)
    store, blocks = ScriptedStore(), blocks_of(3)
    async with worker(store) as connector:
        await put(connector, blocks)
        store.gate.clear()
        for _ in range(3):
            connector._presence.note([one.name for one in blocks], is_there=True)
            with pytest.raises(DeadlineError):
                await found(connector, blocks, 0.05)
        assert connector._free.empty()
        connector._presence.note([one.name for one in blocks], is_there=True)
        with pytest.raises(DeadlineError, match="all buffers"):
            await found(connector, blocks, 0.05)
        store.gate.set()
        await asyncio.sleep(0.1)
        assert connector._free.qsize() == 3
        assert await found(connector, blocks) == right(blocks)


async def test_payloads_that_change_after_a_cancelled_put_are_never_stored_wrongly() -> None:
    store = ScriptedStore()
    async with worker(store) as connector:
        await put(connector, blocks_of(1))
        for _ in range(30):
            blocks = blocks_of(40)
            payloads = [bytearray(one.payload) for one in blocks]
            outgoing = [
                OutgoingBlock(one.name, None, memoryview(payload))
                for one, payload in zip(blocks, payloads, strict=True)
            ]
            task = asyncio.create_task(connector.put(outgoing))
            await asyncio.sleep(CHANCE.random() * 0.002)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for payload in payloads:
                payload[:] = bytes(len(payload))
            for block in blocks:
                for name, payload, _ in await found(connector, [block]):
                    assert (name, payload) == (block.name, block.payload)


async def test_a_master_that_is_not_there_is_tried_again() -> None:
    store, blocks = ScriptedStore(), blocks_of(2)
    store.refusal = lambda: UnavailableError("no master")
    async with worker(store) as connector:
        with pytest.raises(UnavailableError):
            await put(connector, blocks)
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await found(connector, blocks)
        store.refusal = None
        connector._link._retry_at = 0.0
        await put(connector, blocks)
        assert await found(connector, blocks) == right(blocks)


async def test_closing_does_not_wait_for_a_client_that_is_being_made() -> None:
    store = ScriptedStore()
    made = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(settings: MooncakeSettings, buffer_bytes: int) -> object:
        time.sleep(0.2)
        loop.call_soon_threadsafe(made.set)
        return store.client(settings, buffer_bytes)

    connector = MooncakeConnector(SETTINGS, slow)  # type: ignore[arg-type]
    await connector.register(LAYOUT, ())
    started = time.monotonic()
    await connector.close()
    assert time.monotonic() - started < 0.15
    await made.wait()
    for _ in range(100):
        await asyncio.sleep(0.01)
        if store.num_closed:
            return
    raise AssertionError("it gives back what it lends, late")
