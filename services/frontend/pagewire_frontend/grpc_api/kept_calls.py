"""Streamed calls whose answer goes on without its client, and those that read it on."""

import hashlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc.aio
from google.protobuf.message import Message

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.grpc_api.stall_watch import STALLED, StallWatch
from pagewire_frontend.http.kept_streams.directory import StreamDirectory, StreamReading
from pagewire_frontend.http.kept_streams.headers import ON_DISCONNECT, continues
from pagewire_frontend.http.kept_streams.ids import CALL_KIND, require_kind
from pagewire_frontend.http.kept_streams.kept_stream import KeptStream
from pagewire_frontend.http.kept_streams.keyed_streams import EventSource, KeyedStreams, RequestKey
from pagewire_frontend.http.kept_streams.keys import KeyDirectory, checked_key
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.server.request_id import REPLAYED, STREAM_ID
from pagewire_frontend.request_label import IDEMPOTENCY_KEY
from pagewire_protos.common.v1 import error_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.errors import (
    DeadlineError,
    InvalidRequestError,
    PagewireError,
    UnavailableError,
)
from pagewire_shared.rpc.errors import from_detail, to_detail

MOST_RECEIVED: Final = 2**31 - 1

_EVENT: Final = b"\0"
_ERROR: Final = b"\1"

Metadata = Iterable[tuple[str, str | bytes]]
Context = grpc.aio.ServicerContext[Any, Any]
AnswerMessage = TypeVar("AnswerMessage", pb.ChatResponse, pb.CompleteResponse, pb.ResumeResponse)


class CallFraming:
    """Serialized messages, one at a time, each behind a byte that tells it from an error."""

    kind = CALL_KIND

    def frames(self, stream_id: str, first: int, ready: bytes) -> list[bytes]:
        """Return the frame of a message."""
        return [_EVENT + ready]

    def error(self, stream_id: str, number: int, error: PagewireError) -> bytes:
        """Return the frame of an error."""
        return _ERROR + to_detail(error).SerializeToString()


CALL_FRAMING: Final = CallFraming()


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
class GroupStreams:
    """The kept streams of this process, those of its group, and the keys of these."""

    local: LocalStreams
    streams: StreamDirectory
    keys: KeyDirectory


class KeptCalls:
    """The kept calls of one process and its group."""

    def __init__(self, kept: GroupStreams, stalls: StallWatch) -> None:
        """Create it.

        Args:
            stalls: Finds readers that take nothing.
        """
        self._local = kept.local
        self._streams = kept.streams
        self._keyed = KeyedStreams(kept.local, kept.streams, kept.keys, CALL_FRAMING)
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
        tenant, metadata = current_tenant(), []
        if keeping.key is None:
            stream = self._keep(source, tenant)
            reading, stream_id = self._local.reading(stream, 0), stream.stream_id
        else:
            wanted = RequestKey(keeping.key, tenant, _digest(request))
            found = await self._keyed.read(wanted, source)
            reading, stream_id = found.reading, found.stream_id
            metadata = [(REPLAYED, "true")] if found.is_joined else []
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
        self, request: pb.ResumeRequest, context: Context
    ) -> AsyncIterator[pb.ResumeResponse]:
        """Yield the messages of a stream behind those that its client has."""
        require_kind(request.stream_id, CALL_KIND)
        first = request.num_received
        if first > MOST_RECEIVED:
            raise InvalidRequestError(
                f"num_received: at most {MOST_RECEIVED}, got {first}", field="num_received"
            )
        reading = await self._streams.read(request.stream_id, current_tenant(), first)
        read = self._read(reading, request.stream_id, first, [], context, pb.ResumeResponse)
        async for message in read:
            yield message

    async def _read(
        self,
        reading: StreamReading,
        stream_id: str,
        first: int,
        metadata: list[tuple[str, str]],
        context: Context,
        kind: type[AnswerMessage],
    ) -> AsyncIterator[AnswerMessage]:
        def free(_: object) -> None:
            reading.close()

        # A handler that is cancelled while it writes is only unwound when it is collected.
        context.add_done_callback(free)  # type: ignore[arg-type]
        has_stalled = False

        def cut() -> None:
            nonlocal has_stalled
            has_stalled = True

        watched, is_whole = self._stalls.watch(cut), first > 0
        try:
            await context.send_initial_metadata(((STREAM_ID, stream_id), *metadata))
            async for frames in reading.frames:
                for frame in frames:
                    message = _message(frame, stream_id, kind)
                    is_whole = message.HasField("closed")
                    watched.begin_write()
                    yield message
                    watched.end_write()
                    if has_stalled:
                        raise DeadlineError(STALLED)
            if not is_whole:
                raise UnavailableError("the server stops, or the stream was dropped for newer ones")
        finally:
            self._stalls.forget(watched)
            reading.close()


def _message(frame: bytes, stream_id: str, kind: type[AnswerMessage]) -> AnswerMessage:
    """Return the message in a frame. Raises the error in it, if it is one."""
    if frame[:1] == _ERROR:
        raise from_detail(error_pb2.ErrorDetail.FromString(frame[1:]))
    message = kind.FromString(frame[1:])
    if message.HasField("opened"):
        message.opened.stream_id = stream_id
    return message


def _digest(request: Message) -> bytes:
    """Return the digest of a request: of its kind and its fields."""
    body = request.SerializeToString(deterministic=True)
    name = request.DESCRIPTOR.full_name.encode()
    return hashlib.blake2b(name + b"\n" + body, digest_size=32).digest()
