"""Large blocks are copied and checked beside the event loop, in which other streams go on."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.blocks.tenants import Tenants
from pagewire_kvstore.blocks.types import BlockKey, StoreLayout
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.store.create import TierSettings, create_store
from pagewire_kvstore.streams import put_session, shared_assembly
from pagewire_kvstore.streams.limits import ByteBudget
from pagewire_kvstore.streams.put_session import LOOP_BYTES, PutSession
from pagewire_kvstore.tiers.memory import MemoryTier
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.chunk_convert import KvPiece, checksum_of

SIZE = LOOP_BYTES + 4096
LAYOUT = StoreLayout(b"L" * 16, (SIZE,))
CAPACITY = 8 * SIZE


@pytest.fixture
async def store() -> AsyncIterator[BlockStore]:
    settings = TierSettings(memory_bytes=CAPACITY)
    made = create_store(settings, is_pinned=lambda _: False, events=EventLog(100))
    yield made
    made.close()


def session_of(store: BlockStore) -> PutSession:
    return PutSession(store, ByteBudget(CAPACITY), Tenants(), window=8)


def name_of(number: int) -> BlockName:
    return BlockName(bytes([number]) * 16)


def send(session: PutSession, number: int) -> bytes:
    payload = bytes([number, 1, 2, 3]) * (SIZE // 4)
    session.announce(LAYOUT, [name_of(number)], "")
    piece = KvPiece(name=name_of(number), group=0, offset=0, is_last=True, data=payload)
    checksum = crc32c(payload)
    session.add(
        KvPiece(
            name=name_of(number),
            group=0,
            offset=0,
            is_last=True,
            data=payload,
            checksum=checksum_of(piece),
            payload_checksum=checksum,
        )
    )
    return payload


async def held(store: BlockStore, number: int) -> bytes | None:
    async with store.load(BlockKey(LAYOUT.layout_id, 0, name_of(number))) as loaded:
        return None if loaded is None else bytes(loaded.record.payload)


class Gate:
    """Holds up a function until the event loop, which it must not run in, has had a turn."""

    def __init__(self, inner: Callable[..., object]) -> None:
        self.begun, self.is_open, self._inner = threading.Event(), threading.Event(), inner

    def __call__(self, *arguments: object) -> object:
        self.begun.set()
        assert self.is_open.wait(20), "the event loop stood still"
        return self._inner(*arguments)

    async def until_begun(self) -> None:
        async with asyncio.timeout(20):
            while not self.begun.is_set():
                await asyncio.sleep(0.001)


async def test_the_loop_turns_while_a_block_is_copied(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = MemoryTier.fill
    gate = Gate(fill)
    monkeypatch.setattr(MemoryTier, "fill", lambda *arguments: gate(*arguments))
    session = session_of(store)
    payload = send(session, 1)
    publishing = asyncio.create_task(session.publish([name_of(1)]))
    await gate.until_begun()
    assert await held(store, 1) is None, "visible before all of it is there"
    gate.is_open.set()
    assert await publishing == [name_of(1)]
    assert await held(store, 1) == payload


async def test_a_stream_that_ends_gives_room_back_when_the_copy_is_over(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(MemoryTier.fill)
    monkeypatch.setattr(MemoryTier, "fill", lambda *arguments: gate(*arguments))
    abandoned: list[bool] = []
    abandon = BlockStore.abandon

    def note(*arguments: object) -> None:
        abandoned.append(gate.is_open.is_set())
        abandon(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(BlockStore, "abandon", note)
    session = session_of(store)
    send(session, 1)
    publishing = asyncio.create_task(session.publish([name_of(1)]))
    await gate.until_begun()
    publishing.cancel()
    await asyncio.sleep(0.01)
    assert not abandoned
    gate.is_open.set()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    session.close()
    assert abandoned == [True]
    monkeypatch.undo()
    # All of the room can be had again.
    again = session_of(store)
    for number in range(2, 9):
        send(again, number)
        assert await again.publish([name_of(number)]) == [name_of(number)]


async def test_a_large_block_without_room_is_not_published(store: BlockStore) -> None:
    session = session_of(store)
    send(session, 1)
    session._store = FullStore(store)  # type: ignore[assignment]
    assert await session.publish([name_of(1)]) == []
    assert session.num_no_room == 1


class FullStore:
    """A store that has no room at the moment."""

    def __init__(self, store: BlockStore) -> None:
        self._store = store

    def reserve(self, *arguments: object) -> None:
        return None


async def test_the_loop_turns_while_shared_memory_is_checked(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(crc32c)
    monkeypatch.setattr(shared_assembly, "crc32c", lambda data: gate(data))
    session = session_of(store)
    wanted = session.announce(LAYOUT, [name_of(1), name_of(2)], "", in_shared_memory=True)
    assert len(wanted.offsets) == 2
    right = crc32c(bytes(SIZE))
    publishing = asyncio.create_task(
        session.publish_shared([name_of(1), name_of(2)], [right, right ^ 1])
    )
    await gate.until_begun()
    gate.is_open.set()
    with pytest.raises(InvalidRequestError, match="another checksum"):
        await publishing
    assert await held(store, 1) is None
    session.close()


def test_small_blocks_are_copied_on_the_loop() -> None:
    """A thread costs more than copying it."""
    assert put_session.LOOP_BYTES == 1024 * 1024
