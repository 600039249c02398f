"""Kept streams of one process: their bounds, and what is dropped first."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pagewire_frontend.http.kept_streams.ids import StreamNotFoundError
from pagewire_frontend.http.kept_streams.kept_stream import LEGAL_MOVES, KeptState
from pagewire_frontend.http.kept_streams.local_streams import (
    STREAM_BYTES,
    JournalLimits,
    LocalStreams,
)
from pagewire_shared.errors import OverloadedError

ROOM = 10
"""Streams that fit without events."""


class Source:
    """Events that a test sends; None is the end, an exception a failure."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.num_closed = 0

    def send(self, *parts: bytes | Exception | None) -> None:
        for part in parts:
            self.queue.put_nowait(part)

    async def events(self, stream_id: str = "") -> AsyncIterator[bytes]:
        while (part := await self.queue.get()) is not None:
            if isinstance(part, Exception):
                raise part
            yield part

    def close(self) -> None:
        self.num_closed += 1


def table(seconds: float = 60.0) -> LocalStreams:
    limits = JournalLimits(retention_seconds=seconds, max_bytes=ROOM * STREAM_BYTES)
    return LocalStreams("0" * 8, limits)


def ended(streams: LocalStreams, tenant: str | None = None) -> str:
    source = Source()
    source.send(None)
    return streams.keep(source.events(), source.close, tenant).stream_id


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_tenant_has_half_of_the_room_and_drops_its_own() -> None:
    streams = table()
    others = [ended(streams, "other") for _ in range(2)]
    own = []
    for _ in range(ROOM // 2):
        own.append(ended(streams, "own"))
        await settle()
    own.append(ended(streams, "own"))
    assert len(streams) == ROOM // 2 + len(others)
    with pytest.raises(StreamNotFoundError):
        await streams.read(own[0], "own", 0)
    await streams.read(own[1], "own", 0)
    for stream_id in others:
        await streams.read(stream_id, "other", 0)
    streams.close()
    assert (len(streams), streams.num_bytes) == (0, 0)


async def test_streams_that_run_or_are_read_are_not_dropped() -> None:
    streams, sources = table(), [Source() for _ in range(ROOM // 2)]
    kept = [streams.keep(one.events(), one.close, "own") for one in sources]
    with pytest.raises(OverloadedError):
        ended(streams, "own")
    sources[0].send(None)
    sources[1].send(None)
    await settle()
    reading = streams.reading(kept[0], 0)
    ended(streams, "own")  # in the place of the second
    assert (kept[0].state, kept[1].state) == (KeptState.ENDED, KeptState.DROPPED)
    reading.close()
    reading.close()
    assert kept[0].num_readers == 0
    streams.close()
    await settle()
    assert [one.num_closed for one in sources] == [1] * len(sources)


async def test_the_room_of_all_tenants() -> None:
    streams = table()
    for tenant in "abcdefghijkl":
        ended(streams, tenant)
        await settle()
    assert len(streams) == ROOM
    assert streams.num_bytes <= ROOM * STREAM_BYTES
    streams.close()


async def test_a_fault_is_one_last_event_and_the_source_is_closed() -> None:
    streams, source = table(), Source()
    kept = streams.keep(source.events(), source.close, None)
    source.send(b"data: 1\n\ndata: 2\n\n", ValueError("a fault"))
    frames = [frame async for ready in streams.reading(kept, 1).frames for frame in ready]
    assert frames[0] == f"id: {kept.stream_id}:1\ndata: 2\n\n".encode()
    assert b"the server failed on this request" in frames[1]
    assert source.num_closed == 1
    streams.close()


async def test_retention_begins_again_with_each_reader() -> None:
    streams = table(seconds=0.1)
    source = Source()
    kept = streams.keep(source.events(), source.close, None)
    reading = streams.reading(kept, 0)
    await asyncio.sleep(0.2)
    assert len(streams) == 1
    reading.close()
    await asyncio.sleep(0.2)
    assert (len(streams), streams.num_bytes, source.num_closed) == (0, 0, 1)


def test_moves_end() -> None:
    assert set(LEGAL_MOVES) == set(KeptState)
    assert not LEGAL_MOVES[KeptState.DROPPED]
