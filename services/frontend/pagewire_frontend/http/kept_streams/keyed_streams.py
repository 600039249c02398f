"""Answers by the idempotency key of their request: the first request makes the answer, and the
others read it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from pagewire_frontend.http.kept_streams.directory import StreamDirectory, StreamReading
from pagewire_frontend.http.kept_streams.framing import Framing
from pagewire_frontend.http.kept_streams.ids import StreamLostError, StreamNotFoundError
from pagewire_frontend.http.kept_streams.kept_stream import KeptStream
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyDirectory, KeyHolder
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.log_source import LogSource
from pagewire_frontend.http.kept_streams.pulled import PulledSource
from pagewire_frontend.http.server.errors import KeyReusedError
from pagewire_frontend.request_label import IDEMPOTENCY_KEY
from pagewire_shared.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key of a request, its tenant, and the digest of path and body."""

    key: str
    tenant: str | None
    digest: bytes


@dataclass(frozen=True, slots=True)
class KeyedReading:
    """A reading from the first event on, which is there.

    Attributes:
        is_joined: Another request has made the stream.
    """

    stream_id: str
    reading: StreamReading
    is_joined: bool


OnMade = Callable[[str], Awaitable[None]]


class EventSource(Protocol):
    """Makes the events of an answer."""

    @property
    def framing(self) -> Framing:
        """Form of the events."""
        ...

    def events(self, stream_id: str) -> AsyncIterator[bytes | PulledSource]:
        """Yield whole events of the stream as they are sent, several together, or what they are
        pulled from; nothing begins before."""
        ...

    def close(self) -> None:
        """Free what the answer holds; called once."""
        ...


class KeyedStreams:
    """The streams of one process and its group, by key."""

    def __init__(
        self,
        local: LocalStreams,
        streams: StreamDirectory,
        keys: KeyDirectory,
    ) -> None:
        """Create it.

        Args:
            local: Keeps the streams that are made here.
            streams: Finds those of the whole group.
            keys: The keys of the group.
        """
        self._local = local
        self._streams = streams
        self._keys = keys

    async def read(
        self, request: RequestKey, source: EventSource, on_made: OnMade | None = None
    ) -> KeyedReading:
        """Return the answer of a key, which `source` makes where no other has.

        It goes on when the caller is cancelled. `on_made` is awaited with the id of an answer that
        is made here, before its first event.

        Raises:
            KeyReusedError: The key is that of another request.
            PagewireError: What `source` raised before its first event. The key is free again.
        """
        is_mine = asyncio.Event()
        own = self._begin(request.tenant, source, is_mine)
        # Read from here on, so that it does not expire while another is waited for.
        reading = self._local.reading(own, 0)
        try:
            found = await self._other(request, own)
        except BaseException:
            self._local.drop(own)
            raise
        if found is not None:
            self._local.drop(own)
            return found
        is_mine.set()
        if on_made is not None:
            try:
                await on_made(own.stream_id)
            except BaseException:
                reading.close()
                raise
        return await _made(own, reading)

    async def make(self, source: EventSource, tenant: str | None) -> KeyedReading:
        """Return an answer without a key.

        It goes on when the caller is cancelled.

        Raises:
            PagewireError: What `source` raised before its first event.
        """
        is_mine = asyncio.Event()
        is_mine.set()
        own = self._begin(tenant, source, is_mine)
        return await _made(own, self._local.reading(own, 0))

    def _begin(self, tenant: str | None, source: EventSource, is_mine: asyncio.Event) -> KeptStream:
        """Return a stream that waits for its key: others find it as soon as it has the key."""

        async def events() -> AsyncIterator[bytes | PulledSource]:
            await is_mine.wait()
            async for ready in source.events(own.stream_id):
                yield ready

        def close() -> None:
            source.close()
            # The next request of the key is to make a new one. Readers of this have its log.
            if own.error is not None:
                self._local.drop(own)

        own = self._local.keep(
            events(), close, tenant, has_early_error=False, framing=source.framing
        )
        return own

    async def _other(self, request: RequestKey, own: KeptStream) -> KeyedReading | None:
        """Return the answer that another request makes; None when the key is that of `own`."""
        gone = None
        while True:
            claim = KeyClaim(
                tenant=request.tenant,
                key=request.key,
                holder=KeyHolder(own.stream_id, request.digest),
                instead_of=gone,
            )
            held = await self._keys.claim(claim)
            if held.stream_id == own.stream_id:
                return None
            try:
                reading = await self._streams.read(held.stream_id, request.tenant, 0)
                if held.digest != request.digest:
                    reading.close()
                    raise KeyReusedError(
                        f"{IDEMPOTENCY_KEY}: this key is that of another path or body",
                        field=IDEMPOTENCY_KEY,
                    )
                begun = await _begun(reading)
            except (StreamNotFoundError, StreamLostError, UnavailableError):
                # Its process is gone, or does not answer: better twice than not at all.
                begun = None
            if begun is not None:
                return KeyedReading(held.stream_id, begun, is_joined=True)
            gone = held.stream_id


async def _made(own: KeptStream, reading: StreamReading) -> KeyedReading:
    begun = await _begun(reading)
    if begun is None:
        raise own.error or UnavailableError("the server stops")
    return KeyedReading(own.stream_id, begun, is_joined=False)


async def _begun(reading: StreamReading) -> StreamReading | None:
    """Return a reading with its first events; None when it ended without any."""
    if reading.source is not None:
        return await _begun_here(reading, reading.source)
    try:
        first = await anext(reading.frames, None)
    except BaseException:
        reading.close()
        raise
    if first is None:
        reading.close()
        return None
    return StreamReading(_joined(first, reading.frames), reading.close)


async def _begun_here(reading: StreamReading, source: LogSource) -> StreamReading | None:
    try:
        has_begun = await source.wait_first()
    except BaseException:
        reading.close()
        raise
    if not has_begun:
        reading.close()
    return reading if has_begun else None


async def _joined(
    first: list[bytes], rest: AsyncIterator[list[bytes]]
) -> AsyncIterator[list[bytes]]:
    yield first
    async for ready in rest:
        yield ready


async def data_of(reading: StreamReading) -> bytes:
    """Return the data of the only event of a whole answer, and close the reading."""
    try:
        frames: list[bytes] = await anext(reading.frames, [])
    finally:
        reading.close()
    _, _, data = b"".join(frames).partition(b"\ndata: ")
    return data.rstrip(b"\n")
