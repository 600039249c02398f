"""Streamed calls whose answer goes on without its client, and those that read it on."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import grpc.aio
from google.protobuf.message import Message

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.grpc_api.kept_convert import (
    CALL_FRAMING,
    AnswerMessage,
    digest_of_call,
    message_of,
)
from pagewire_frontend.grpc_api.stall_watch import STALLED, StallWatch
from pagewire_frontend.http.kept_streams.directory import StreamDirectory, StreamReading
from pagewire_frontend.http.kept_streams.headers import ON_DISCONNECT, continues
from pagewire_frontend.http.kept_streams.ids import CALL_KIND, require_kind
from pagewire_frontend.http.kept_streams.kept_stream import KeptStream
from pagewire_frontend.http.kept_streams.keyed_streams import EventSource, KeyedStreams, RequestKey
from pagewire_frontend.http.kept_streams.keys import KeyDirectory, checked_key
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import RecipeMirror
from pagewire_frontend.http.server.request_id import REPLAYED, STREAM_ID
from pagewire_frontend.request_label import IDEMPOTENCY_KEY
from pagewire_shared.errors import (
    DeadlineError,
    InvalidRequestError,
    UnavailableError,
)

MOST_RECEIVED: Final = 2**31 - 1

Metadata = Iterable[tuple[str, str | bytes]]
Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a call is kept: under an idempotency key, or without."""

    key: str | None


def keeping_of(metadata: Metadata | None, *, keeps_any: bool) -> Keeping | None:
    """Return how a call with this metadata is kept; None for one that ends with its client.

    Raises:
        InvalidRequestError: A value is wrong, or this server keeps no streams.
    """
    values: dict[str, str] = {}
    for name, value in metadata or ():
        values.setdefault(name, value if isinstance(value, str) else value.decode("latin-1"))
    key, on_disconnect = values.get(IDEMPOTENCY_KEY), values.get(ON_DISCONNECT, "abort")
    goes_on = continues(on_disconnect, is_streamed=True, keeps_any=keeps_any)
    if key is not None:
        return Keeping(checked_key(key, keeps_any=keeps_any))
    return Keeping(None) if goes_on else None


def require_not_kept(metadata: Metadata | None, method: str) -> None:
    """Raise InvalidRequestError if a call that cannot be kept asks for it."""
    for name, _ in metadata or ():
        if name in (IDEMPOTENCY_KEY, ON_DISCONNECT):
            raise InvalidRequestError(
                f"{name} is not supported by {method}; use Chat or Complete",
                field=name,
                code="unsupported_parameter",
            )


@dataclass(frozen=True, slots=True)
class CallStreams:
    """The kept streams of this process, those of its group, the keys of these, and what has their
    recipes kept by other frontends."""

    local: LocalStreams
    streams: StreamDirectory
    keys: KeyDirectory
    mirror: RecipeMirror


class KeptCalls:
    """The kept calls of one process and its group."""

    def __init__(self, kept: CallStreams, stalls: StallWatch) -> None:
        """Create it.

        Args:
            stalls: Finds readers that take nothing.
        """
        self._local = kept.local
        self._streams = kept.streams
        self._keyed = KeyedStreams(kept.local, kept.streams, kept.keys)
        self._stalls = stalls

    @property
    def keeps_any(self) -> bool:
        """Whether streams are kept at all."""
        return self._local.keeps_any

    async def deliver(
        self,
        keeping: Keeping,
        request: Message,
        source: EventSource,
        context: Context,
        kind: type[AnswerMessage],
    ) -> AsyncIterator[AnswerMessage]:
        """Yield the messages of an answer, which `source` makes or another call has made."""
        tenant = current_tenant()
        metadata: Sequence[tuple[str, str]] | None = ()

        async def name(stream_id: str) -> None:
            # A client that leaves before the first message can end the stream.
            await context.send_initial_metadata(((STREAM_ID, stream_id),))

        if keeping.key is None:
            stream = self._keep(source, tenant)
            reading, stream_id = self._local.reading(stream, 0), stream.stream_id
        else:
            wanted = RequestKey(
                keeping.key, tenant, await asyncio.to_thread(digest_of_call, request)
            )
            found = await self._keyed.read(wanted, source, name)
            reading, stream_id = found.reading, found.stream_id
            metadata = [(REPLAYED, "true")] if found.is_joined else None
        async for message in self._read(reading, stream_id, 0, metadata, context, kind):
            yield message

    def _keep(self, source: EventSource, tenant: str | None) -> KeptStream:
        stream_id = self._local.mint(CALL_FRAMING)
        return self._local.keep(
            source.events(stream_id),
            source.close,
            tenant,
            framing=CALL_FRAMING,
            stream_id=stream_id,
        )

    async def resume(
        self, stream_id: str, first: int, context: Context, kind: type[AnswerMessage]
    ) -> AsyncIterator[AnswerMessage]:
        """Yield the messages of a stream behind the `first` ones that its client has."""
        require_kind(stream_id, CALL_KIND)
        if first > MOST_RECEIVED:
            raise InvalidRequestError(
                f"num_received: at most {MOST_RECEIVED}, got {first}", field="num_received"
            )
        # The last message that the client has says whether any follow.
        reading = await self._streams.read(stream_id, current_tenant(), max(0, first - 1))
        async for message in self._read(reading, stream_id, first, (), context, kind):
            yield message

    async def cancel(self, stream_id: str) -> None:
        """End a stream of a call, and forget it."""
        require_kind(stream_id, CALL_KIND)
        await self._streams.forget(stream_id, current_tenant())

    async def _read(
        self,
        reading: StreamReading,
        stream_id: str,
        first: int,
        metadata: Sequence[tuple[str, str]] | None,
        context: Context,
        kind: type[AnswerMessage],
    ) -> AsyncIterator[AnswerMessage]:
        """Yield messages; `metadata` is sent before them, beside the name of the stream, but None
        where that was sent already."""

        def free(_: object) -> None:
            reading.close()

        # A handler that is cancelled while it writes is only unwound when it is collected.
        context.add_done_callback(free)  # type: ignore[arg-type]
        has_stalled = False

        def cut() -> None:
            nonlocal has_stalled
            has_stalled = True

        watched, is_whole = self._stalls.watch(cut), False
        # The messages before `first` that the log begins with.
        num_known = min(first, 1)
        try:
            if metadata is not None:
                named: tuple[tuple[str, str], ...] = ((STREAM_ID, stream_id),)
                await context.send_initial_metadata(named + tuple(metadata))
            async for frames in reading.frames:
                for frame in frames:
                    message = message_of(frame, stream_id, kind)
                    is_whole = message.HasField("closed")
                    if num_known:
                        num_known = 0
                        continue
                    watched.begin_write()
                    yield message
                    watched.end_write()
                    if has_stalled:
                        raise DeadlineError(STALLED)
            if num_known:
                raise InvalidRequestError(
                    f"num_received: the stream has no {first} messages", field="num_received"
                )
            if not is_whole:
                raise UnavailableError("the server stops, or the stream was dropped for newer ones")
        finally:
            self._stalls.forget(watched)
            reading.close()
