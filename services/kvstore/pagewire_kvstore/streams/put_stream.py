"""One Put stream: converts messages to calls of a PutSession, and its results to responses."""

import asyncio
import struct
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from pagewire_kvstore.blocks.tenants import DEFAULT_TENANT
from pagewire_kvstore.streams.convert import join_names, split_names, store_layout
from pagewire_kvstore.streams.metrics import GRPC, NO_ROOM, PUT_BYTES, PUT_SECONDS
from pagewire_kvstore.streams.put_session import PutSession
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.errors import DeadlineError, InvalidRequestError, WireError
from pagewire_shared.kv.chunk_convert import KvPiece

Read = Callable[[], Awaitable[Any]]

WINDOW_CHUNKS = 16
_CHECKSUM_BYTES = 4


async def read_request(read: Read, stall_seconds: float | None) -> Any:
    """Return the next request, or None when the peer has no more.

    Raises:
        DeadlineError: No request came within `stall_seconds`; None waits for ever.
        InvalidRequestError: The request is not a message of this stream.
    """
    try:
        async with asyncio.timeout(stall_seconds):
            request = await read()
    except TimeoutError as error:
        raise DeadlineError(f"nothing was sent for {stall_seconds:g} seconds") from error
    except DecodeError as error:
        raise InvalidRequestError(
            f"the request is no message of this method: {error}", code="invalid_type"
        ) from error
    return None if request is grpc.aio.EOF else request


class PutStream:
    """Serves one worker that stores blocks.

    Args:
        stall_seconds: Longest silence while blocks of the worker are under way.
        has_shared_memory: Whether the worker may write to the store's memory.
    """

    def __init__(
        self, session: PutSession, read: Read, stall_seconds: float, *, has_shared_memory: bool
    ) -> None:
        self._session = session
        self._has_shared_memory = has_shared_memory
        self._read = read
        self._stall_seconds = stall_seconds
        self._announced_at: float | None = None

    async def responses(self) -> AsyncGenerator[kv_store_pb2.PutResponse, None]:
        """Yield responses, until the worker has no more to send."""
        try:
            yield _credit(WINDOW_CHUNKS)
            while (request := await self._next()) is not None:
                response = await self._answer(request)
                if response is not None:
                    yield response
        finally:
            self._session.close()

    async def _next(self) -> Any:
        # A worker may be silent for any time, unless a block of it is incomplete.
        seconds = self._stall_seconds if self._session.is_waiting else None
        return await read_request(self._read, seconds)

    async def _answer(
        self, request: KvPiece | kv_store_pb2.PutRequest
    ) -> kv_store_pb2.PutResponse | None:
        if isinstance(request, KvPiece):
            num_credits = self._session.add(request)
            PUT_BYTES.labels(GRPC).inc(len(request.data))
            return _credit(num_credits) if num_credits else None
        match request.WhichOneof("message"):
            case "announce":
                return self._announce(request.announce)
            case "publish":
                return await self._publish(request.publish)
            case _:
                raise WireError("a PutRequest without a message")

    def _announce(self, announce: kv_store_pb2.PutAnnounce) -> kv_store_pb2.PutResponse:
        tenant = announce.tenant if announce.HasField("tenant") else DEFAULT_TENANT
        layout = store_layout(announce.layout)
        names = split_names(announce.names)
        num_before = self._session.num_no_room
        # Without shared memory the answer has no offsets, and the worker sends chunks.
        in_shared_memory = announce.use_shared_memory and self._has_shared_memory
        wanted = self._session.announce(layout, names, tenant, in_shared_memory=in_shared_memory)
        NO_ROOM.inc(self._session.num_no_room - num_before)
        if wanted.names and self._announced_at is None:
            self._announced_at = time.monotonic()
        answer = kv_store_pb2.PutWanted(
            names=join_names(wanted.names),
            offsets=struct.pack(f"<{len(wanted.offsets)}Q", *wanted.offsets),
            declined=join_names(wanted.declined),
        )
        return kv_store_pb2.PutResponse(wanted=answer)

    async def _publish(self, publish: kv_store_pb2.PutPublish) -> kv_store_pb2.PutResponse:
        names = split_names(publish.names)
        num_before = self._session.num_no_room
        if publish.checksums:
            published = await self._session.publish_shared(names, _checksums(publish.checksums))
        else:
            published = await self._session.publish(names)
        NO_ROOM.inc(self._session.num_no_room - num_before)
        if self._announced_at is not None:
            PUT_SECONDS.observe(time.monotonic() - self._announced_at)
            self._announced_at = None
        answer = kv_store_pb2.PutPublished(names=join_names(published))
        return kv_store_pb2.PutResponse(published=answer)


def _checksums(data: bytes) -> tuple[int, ...]:
    if len(data) % _CHECKSUM_BYTES:
        raise InvalidRequestError(
            f"checksums of 4 bytes each cannot have {len(data)} together", field="checksums"
        )
    return struct.unpack(f"<{len(data) // _CHECKSUM_BYTES}I", data)


def _credit(num_chunks: int) -> kv_store_pb2.PutResponse:
    return kv_store_pb2.PutResponse(credit=kv_store_pb2.PutCredit(num_chunks=num_chunks))
