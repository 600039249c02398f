"""The kept streams of this process, within their bounds."""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.framing import SSE_FRAMING, Framing
from pagewire_frontend.http.kept_streams.ids import (
    mint_stream_id,
    stream_elsewhere,
    stream_not_found,
    tag_of_stream,
)
from pagewire_frontend.http.kept_streams.kept_stream import KeptState, KeptStream
from pagewire_frontend.http.kept_streams.log_source import LogSource
from pagewire_frontend.http.kept_streams.pulled import PulledSource
from pagewire_shared.errors import OverloadedError, UnavailableError
from pagewire_shared.exhaustion import ExhaustedError

STREAM_BYTES: Final = 8192
"""Memory of a stream beside its events, about."""
MAX_GIVEN_UP: Final = 10_000
"""Streams that are remembered as given up, the last ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalLimits:
    """Bounds of the kept streams of a process.

    Attributes:
        retention_seconds: How long a stream without readers is kept; 0 keeps none.
        max_bytes: Most bytes of all; a tenant has at most half of them.
    """

    retention_seconds: float
    max_bytes: int


class LocalStreams:
    """A StreamDirectory of the streams that this process made. `close` it at the end."""

    def __init__(self, tag: str, limits: JournalLimits) -> None:
        """Create the table.

        Args:
            tag: Tag of this process in the ids of its streams.
        """
        self._tag = tag
        self.limits = limits
        self._streams: OrderedDict[str, KeptStream] = OrderedDict()
        self._num_bytes: Counter[str | None] = Counter()
        self._total = 0
        self.is_ending = False
        """Whether this process ends."""
        # Tenants, and until when.
        self._given_up: dict[str, tuple[str | None, float]] = {}

    @property
    def keeps_any(self) -> bool:
        """Whether streams are kept at all."""
        return self.limits.retention_seconds > 0

    @property
    def num_bytes(self) -> int:
        """Bytes of all streams."""
        return self._total

    def __len__(self) -> int:
        return len(self._streams)

    def keep(
        self,
        events: AsyncIterator[bytes | PulledSource],
        close: Callable[[], None],
        tenant: str | None,
        *,
        has_early_error: bool = True,
        framing: Framing = SSE_FRAMING,
        stream_id: str | None = None,
    ) -> KeptStream:
        """Return a new stream of these events; see KeptStream.

        Args:
            stream_id: Its id: of `mint`, or of a stream of a process that is gone.

        Raises:
            OverloadedError: There is no room; nothing was taken.
        """
        stream_id = stream_id or self.mint(framing)
        if not self._make_room(tenant, STREAM_BYTES):
            raise OverloadedError("kept streams fill --stream-journal-bytes")

        def closed() -> None:
            close()
            if isinstance(stream.error, ExhaustedError):
                self._give_up(stream)

        stream = KeptStream(
            stream_id,
            tenant,
            events=events,
            close=closed,
            hold=self._hold,
            has_early_error=has_early_error,
            framing=framing,
        )
        self._streams[stream_id] = stream
        self._count(stream, STREAM_BYTES)
        self._leave(stream)
        return stream

    def mint(self, framing: Framing = SSE_FRAMING) -> str:
        """Return the id of a new stream."""
        return mint_stream_id(framing.kind, self._tag)

    def is_own(self, stream_id: str) -> bool:
        """Whether a stream of this id was made by this process, or its id is malformed."""
        return tag_of_stream(stream_id) in (None, self._tag)

    def find(self, stream_id: str) -> KeptStream | None:
        """Return a stream, of any tenant; None for one that is not here."""
        return self._streams.get(stream_id)

    def ids(self) -> list[str]:
        """Return the ids of all streams."""
        return list(self._streams)

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read a stream; see StreamDirectory.

        Raises:
            UnavailableError: This process ends, or had no resources for the stream; others make
                it again.
        """
        return self.reading(self._found(stream_id, tenant), first)

    async def forget(self, stream_id: str, tenant: str | None) -> None:
        """End a stream and forget it; see StreamDirectory. Raises as `read`."""
        self.drop(self._found(stream_id, tenant))

    def _found(self, stream_id: str, tenant: str | None) -> KeptStream:
        stream = self._streams.get(stream_id)
        if stream is None:
            self.check_lost(stream_id, tenant)
        # The error does not show whether another tenant has a stream of this id.
        if stream is None and not self.is_own(stream_id):
            raise stream_elsewhere(stream_id)
        if stream is None or stream.tenant != tenant:
            raise stream_not_found(stream_id)
        return stream

    def check_lost(self, stream_id: str, tenant: str | None) -> None:
        """Raise UnavailableError where a stream that is not here may go on elsewhere."""
        if self.is_ending:
            raise UnavailableError("this frontend ends; ask again", retry_after_ms=0)
        if self._is_given_up(stream_id, tenant):
            raise UnavailableError("this frontend had no resources for this stream; ask again")

    def reading(self, stream: KeptStream, first: int) -> StreamReading:
        """Begin to read a stream from event number `first` on."""
        stream.num_readers += 1
        if stream.expiry is not None:
            stream.expiry.cancel()
            stream.expiry = None
        is_open, source = True, LogSource(stream.log, first)

        def close() -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                source.close()
                stream.num_readers -= 1
                self._leave(stream)

        return StreamReading(stream.log.follow(first), close, source)

    def expect_end(self) -> None:
        """Note that this process ends, and its streams with it: one that is missing from now on
        may go on elsewhere."""
        self.is_ending = True

    def close(self) -> None:
        """Drop all streams."""
        self.expect_end()
        for stream in list(self._streams.values()):
            self.drop(stream)

    def _leave(self, stream: KeptStream) -> None:
        """Drop a stream after a while without readers."""
        if not stream.num_readers and stream.state is not KeptState.DROPPED:
            loop = asyncio.get_running_loop()
            seconds = self.limits.retention_seconds
            stream.expiry = loop.call_later(seconds, partial(self.drop, stream))

    def drop(self, stream: KeptStream) -> None:
        """Forget a stream, and end it; again is allowed. Its readers have what is in its log."""
        if self._streams.pop(stream.stream_id, None) is None:
            return
        if stream.expiry is not None:
            stream.expiry.cancel()
        self._count(stream, -stream.num_held)
        stream.drop()

    def _give_up(self, stream: KeptStream) -> None:
        """Drop a stream for which this process had no descriptors or memory: for a while others
        that have its recipe are asked to make it again."""
        self.drop(stream)
        until = time.monotonic() + self.limits.retention_seconds
        self._given_up[stream.stream_id] = stream.tenant, until
        if len(self._given_up) > MAX_GIVEN_UP:
            del self._given_up[next(iter(self._given_up))]

    def _is_given_up(self, stream_id: str, tenant: str | None) -> bool:
        owner, until = self._given_up.get(stream_id, (None, 0.0))
        return time.monotonic() < until and owner == tenant

    def _hold(self, stream: KeptStream, num_bytes: int) -> bool:
        if stream.state is KeptState.DROPPED or not self._make_room(stream.tenant, num_bytes):
            return False
        self._count(stream, num_bytes)
        return True

    def _count(self, stream: KeptStream, num_bytes: int) -> None:
        stream.num_held += num_bytes
        self._total += num_bytes
        self._num_bytes[stream.tenant] += num_bytes
        if not self._num_bytes[stream.tenant]:
            del self._num_bytes[stream.tenant]

    def _make_room(self, tenant: str | None, num_bytes: int) -> bool:
        """Drop ended streams without readers, oldest first, until `num_bytes` fit."""
        share = self.limits.max_bytes // 2
        while self._num_bytes[tenant] + num_bytes > share:
            if not self._drop_one(lambda one: one.tenant == tenant):
                return False
        while self._total + num_bytes > self.limits.max_bytes:
            if not self._drop_one(lambda _: True):
                return False
        return True

    def _drop_one(self, is_meant: Callable[[KeptStream], bool]) -> bool:
        for stream in self._streams.values():
            if stream.state is KeptState.ENDED and not stream.num_readers and is_meant(stream):
                self.drop(stream)
                return True
        return False
