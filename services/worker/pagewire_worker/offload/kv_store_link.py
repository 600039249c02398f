"""One connection to a KV store: dialled on demand, greeted, and dropped when it fails."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import grpc.aio
import numpy as np

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2 as wire
from pagewire_protos.kvstore.v1 import kv_store_pb2_grpc
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import (
    DeadlineError,
    InternalError,
    InvalidRequestError,
    PagewireError,
    UnavailableError,
    WireError,
)
from pagewire_shared.kv.arena import ArenaFacts
from pagewire_shared.kv.arrays import pack_names
from pagewire_shared.kv.streams import deserializer, serializer
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import kv_channel_options
from pagewire_shared.security.roles import LinkRole
from pagewire_worker.offload.connector import LoadedBlock, OutgoingBlock
from pagewire_worker.offload.get_stream import blocks_per_stream, read_blocks
from pagewire_worker.offload.put_stream import PutStream
from pagewire_worker.offload.shared_arena import SharedArena, open_arena


class OpeningCalls:
    """Calls that wait to send their first message.

    When a channel is closed, gRPC ends the calls over it that have begun. Other calls wait for ever
    (seen with grpcio 1.85).
    """

    def __init__(self) -> None:
        self._timeouts: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def opening(self, seconds: float) -> AsyncIterator[None]:
        """Surround the first messages of a call.

        Raises:
            DeadlineError: The call has not sent them after `seconds`.
            UnavailableError: The channel was closed.
        """
        timeout = asyncio.timeout(seconds)
        try:
            async with timeout:
                self._timeouts.add(timeout)
                yield
        except TimeoutError as error:
            if timeout not in self._timeouts:
                raise UnavailableError("the link to the store was closed") from error
            raise DeadlineError(f"the store took no request for {seconds:g} s") from error
        finally:
            self._timeouts.discard(timeout)

    def end(self) -> None:
        """End all calls: their channel is closed."""
        timeouts, self._timeouts = self._timeouts, set()
        for timeout in timeouts:
            timeout.reschedule(0.0)


_logger = logging.getLogger(__name__)

_SERVICE = "/pagewire.kvstore.v1.KvStoreService"
_ID_BYTES = 16
# Generated classes satisfy the protocol of the serializers, which their stubs do not show.
_PUT_REQUEST: Any = wire.PutRequest
_GET_RESPONSE: Any = wire.GetResponse


class KvStoreLink:
    """A store at one address, for blocks of one layout.

    Puts share long streams, as many as there are concurrent puts. Every load has a stream of its
    own.

    Args:
        stall_seconds: Longest time that the store may take to answer a hello or a put.
    """

    def __init__(self, address: str, layout: layout_pb2.KvLayout, stall_seconds: float) -> None:
        self.store_id = b""
        self._address = address
        self._layout = layout
        self._stall_seconds = stall_seconds
        self._channel: grpc.aio.Channel | None = None
        self._dialling: asyncio.Task[grpc.aio.Channel] | None = None
        self._is_closed = False
        self._put_streams: set[PutStream] = set()
        self._idle_put_streams: list[PutStream] = []
        self._opening_calls = OpeningCalls()
        self._arena: SharedArena | None = None
        self._touching: asyncio.Task[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the store can be reached, as far as the connection shows."""
        channel = self._channel
        return channel is not None and channel.get_state() is grpc.ChannelConnectivity.READY

    def prepare(self) -> "asyncio.Task[grpc.aio.Channel]":
        """Dial and greet ahead of the first load; return the task to wait for."""
        if self._is_closed:
            raise UnavailableError("the scheduler names this store no more")
        if self._dialling is None or self._dialling.done():
            self._dialling = asyncio.create_task(self._connect())
            self._dialling.add_done_callback(_note_failure)
        return self._dialling

    async def put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        """See KvConnector."""
        was_used = bool(self._idle_put_streams)
        try:
            return await self._put(blocks)
        except (UnavailableError, InternalError):
            # gRPC says "internal" if it finds the connection gone during a write. The stream may
            # have ended long ago, with a store that is back by now.
            if not was_used:
                raise
        return await self._put(blocks)

    async def exist(self, names: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of at most 4096 `names` that the store has in any tier.

        Raises:
            PagewireError: The store cannot be reached, is too slow or broke the contract.
        """
        request = wire.ExistRequest(layout=self._layout, names=pack_names(names))
        async with self._dialled() as channel:
            stub: Any = kv_store_pb2_grpc.KvStoreServiceStub(channel)
            answer = await stub.Exist(request, timeout=self._stall_seconds)
        if answer is None or len(answer.is_there) != -(-len(names) // 8):
            raise WireError("the store's answer has another number of bits", field="is_there")
        bits = np.unpackbits(np.frombuffer(answer.is_there, np.uint8), bitorder="little")
        return frozenset(name for name, bit in zip(names, bits, strict=False) if bit)

    async def get(
        self, names: Sequence[bytes], timeout_seconds: float
    ) -> AsyncGenerator[LoadedBlock, None]:
        """See KvConnector."""
        end = time.monotonic() + timeout_seconds
        was_used = self._channel is not None
        num_blocks = 0
        try:
            async with aclosing(self._get(names, end)) as blocks:
                async for block in blocks:
                    num_blocks += 1
                    yield block
            return
        except (UnavailableError, InternalError):
            # The channel may lead to a store that has ended and is back by now.
            if not was_used or num_blocks:
                raise
        async with aclosing(self._get(names, end)) as blocks:
            async for block in blocks:
                yield block

    async def _get(self, names: Sequence[bytes], end: float) -> AsyncGenerator[LoadedBlock, None]:
        try:
            async with self._dialled() as channel:
                step = blocks_per_stream(
                    self._layout.groups[0].bytes_per_block,
                    in_shared_memory=self._arena is not None,
                )
                for begin in range(0, len(names), step):
                    wanted = names[begin : begin + step]
                    seconds = end - time.monotonic()
                    call = self._open_get_stream(channel, seconds)
                    num_blocks = 0
                    opening = self._opening_calls.opening(seconds)
                    reading = read_blocks(call, self._layout, wanted, opening, self._arena)
                    async with aclosing(reading) as blocks:
                        async for block in blocks:
                            num_blocks += 1
                            yield block
                    if num_blocks < len(wanted):
                        return
        finally:
            await self._drop_doubtful()

    async def close(self) -> None:
        """Close the channel for good; its streams end."""
        self._is_closed = True
        if self._dialling is not None:
            self._dialling.cancel()
        await self._hang_up()

    async def _hang_up(self) -> None:
        for stream in self._put_streams:
            stream.cancel()
        self._put_streams.clear()
        self._idle_put_streams.clear()
        channel, self._channel = self._channel, None
        self._opening_calls.end()
        if channel is not None:
            await channel.close()

    async def _drop_doubtful(self) -> None:
        """Drop the connection if the store's memory is not the mapped one; it is dialled anew."""
        if self._arena is not None and self._arena.is_doubtful:
            self._arena = None
            await self._hang_up()

    async def _put(self, blocks: Sequence[OutgoingBlock]) -> frozenset[bytes]:
        async with self._dialled() as channel:
            stream = self._take_put_stream(channel)
            is_done = False
            try:
                names = await stream.put(blocks)
                is_done = True
            finally:
                self._give_back(stream, is_useful=is_done)
        return names

    def _open_get_stream(self, channel: grpc.aio.Channel, timeout_seconds: float) -> Any:
        method = channel.stream_stream(
            f"{_SERVICE}/Get",
            request_serializer=wire.GetRequest.SerializeToString,
            response_deserializer=deserializer(_GET_RESPONSE),
        )
        return method(timeout=timeout_seconds)

    def _take_put_stream(self, channel: grpc.aio.Channel) -> PutStream:
        if self._idle_put_streams:
            return self._idle_put_streams.pop()
        method = channel.stream_stream(
            f"{_SERVICE}/Put",
            request_serializer=serializer(_PUT_REQUEST),
            response_deserializer=wire.PutResponse.FromString,
        )
        call: Any = method()
        stream = PutStream(call, self._layout, self._stall_seconds, self._arena)
        self._put_streams.add(stream)
        return stream

    def _give_back(self, stream: PutStream, *, is_useful: bool) -> None:
        if stream not in self._put_streams:
            return  # the stream ended with its channel
        if is_useful:
            self._idle_put_streams.append(stream)
        else:
            self._put_streams.remove(stream)
            stream.cancel()

    @asynccontextmanager
    async def _dialled(self) -> AsyncIterator[grpc.aio.Channel]:
        """Yield a channel; its errors become PagewireErrors, and may close it."""
        channel = None
        try:
            channel = await self._dial()
            yield channel
        except grpc.RpcError as rpc_error:
            raise await self._failed(channel, from_rpc_error(rpc_error)) from rpc_error
        except UnavailableError as error:
            raise await self._failed(channel, error) from error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # gRPC cancels the users of a stream when the channel was closed.
            raise UnavailableError("the link to the store was closed") from None

    async def _dial(self) -> grpc.aio.Channel:
        """Return a channel to a store that has accepted the layout."""
        if self._channel is not None:
            # gRPC would reconnect by itself, without a check that it is still the same store.
            if self._channel.get_state() is grpc.ChannelConnectivity.READY:
                return self._channel
            await self._hang_up()
        # Continues if a load gives up waiting: the next load finds the channel.
        return await asyncio.shield(self.prepare())

    async def _connect(self) -> grpc.aio.Channel:
        # With its own pool: a new channel must not wait out the backoff of an old one.
        options = [*kv_channel_options(), ("grpc.use_local_subchannel_pool", 1)]
        channel = open_channel(self._address, LinkRole.KVSTORE, options)
        try:
            await self._greet(channel)
        except BaseException:
            await channel.close()
            raise
        self._channel = channel
        return channel

    async def _greet(self, channel: grpc.aio.Channel) -> None:
        hello = wire.HelloRequest(protocol=protocol_range(), layout=self._layout)
        stub: Any = kv_store_pb2_grpc.KvStoreServiceStub(channel)
        answer = await stub.Hello(hello, timeout=self._stall_seconds)
        if answer is None:
            # grpc.aio returns None for bytes that are not a message.
            raise WireError("the store's answer to a hello is no message")
        if len(answer.store_id) != _ID_BYTES:
            raise WireError(f"store_id must have {_ID_BYTES} bytes", field="store_id")
        self.store_id = answer.store_id
        self._arena = None
        if answer.HasField("shared_memory"):
            self._arena = open_arena(_facts(answer.shared_memory))
        if self._arena is not None:
            self._touching = asyncio.create_task(asyncio.to_thread(self._arena.touch))

    async def _failed(
        self, channel: grpc.aio.Channel | None, error: PagewireError
    ) -> PagewireError:
        """Return `error`; close the channel if its store is gone, to be dialled anew."""
        is_lost = isinstance(error, UnavailableError | InternalError)
        # Also if the store does not find the bytes that were written to its memory.
        is_lost |= self._arena is not None and isinstance(error, InvalidRequestError)
        if is_lost and channel is self._channel:
            await self._hang_up()
        return error


def _note_failure(task: "asyncio.Task[Any]") -> None:
    """Retrieve the exception, in case that no load waits: a load that needs it dials again."""
    if not task.cancelled() and task.exception() is not None:
        _logger.debug("a KV store cannot be reached: %s", task.exception())


def _facts(message: wire.SharedMemory) -> ArenaFacts:
    return ArenaFacts(
        path=message.path,
        boot_id=message.boot_id,
        device=message.device,
        inode=message.inode,
        num_bytes=message.num_bytes,
    )
