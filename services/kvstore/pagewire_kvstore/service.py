"""The gRPC service of the store: checks requests and starts the stream that serves each method."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.blocks.leases import Leases
from pagewire_kvstore.blocks.tenants import DEFAULT_TENANT, Tenants
from pagewire_kvstore.blocks.types import BlockKey
from pagewire_kvstore.store.block_store import BlockStore
from pagewire_kvstore.streams.convert import (
    join_bits,
    join_names,
    shared_memory,
    split_names,
    store_layout,
    tier_stats,
)
from pagewire_kvstore.streams.get_stream import GetStream
from pagewire_kvstore.streams.limits import ByteBudget, StoreStreamLimits
from pagewire_kvstore.streams.metrics import EXIST_NAMES, PINNED
from pagewire_kvstore.streams.open_streams import OpenStreams
from pagewire_kvstore.streams.put_session import PutSession, check_block_size
from pagewire_kvstore.streams.put_stream import WINDOW_CHUNKS, PutStream
from pagewire_kvstore.streams.watch_stream import WatchStream
from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_shared.convert import agree_protocol
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import ID_BYTES, mint_id
from pagewire_shared.inspection.stacks import own_stacks
from pagewire_shared.inspection.stacks_convert import stacks_to_message
from pagewire_shared.kv import streams as kv_streams
from pagewire_shared.kv.arena import ArenaFacts

_SERVICE = kv_store_pb2.DESCRIPTOR.services_by_name["KvStoreService"]

SERVICE_NAME: str = _SERVICE.full_name


def add_service(service: Any, server: grpc.aio.Server) -> None:
    """Serve every method of KvStoreService with the method of that name of `service`."""
    handlers = {method.name: _handler(service, method) for method in _SERVICE.methods}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))


def _handler(service: Any, method: Any) -> "grpc.RpcMethodHandler[Any, Any]":
    call = getattr(service, method.name)
    request: Any = GetMessageClass(method.input_type)
    response: Any = GetMessageClass(method.output_type)
    decode, encode = request.FromString, response.SerializeToString
    if method.client_streaming:
        if "chunk" in request.DESCRIPTOR.fields_by_name:
            decode = kv_streams.deserializer(request)
        if "chunk" in response.DESCRIPTOR.fields_by_name:
            encode = kv_streams.serializer(response)
        return grpc.stream_stream_rpc_method_handler(call, decode, encode)
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(call, decode, encode)
    return grpc.unary_unary_rpc_method_handler(call, decode, encode)


Context = grpc.aio.ServicerContext[Any, Any]

_NOTHING: tuple[Any, ...] = ()
"""Makes a method a generator, as gRPC requires; OpenStreams.send has sent its responses."""


class KvStoreService(kv_store_pb2_grpc.KvStoreServiceServicer):
    """Serves the blocks of one store. Register it with `add_service`.

    Args:
        events: Log that the store adds block events to.
        leases: Pins, which the store respects.
        shared: File of the memory tier for peers of this host; None when they may not map it.
    """

    def __init__(
        self,
        *,
        store: BlockStore,
        events: EventLog,
        leases: Leases,
        tenants: Tenants,
        limits: StoreStreamLimits,
        shared: ArenaFacts | None = None,
    ) -> None:
        self.store_id = mint_id()
        self._store = store
        self._events = events
        self._leases = leases
        self._tenants = tenants
        self._shared = shared
        self._expiry: asyncio.TimerHandle | None = None
        self._stall_seconds = limits.stall_seconds
        self._budget = ByteBudget(limits.max_put_bytes)
        self._puts = OpenStreams("put", limits.max_puts, limits.stall_seconds)
        self._gets = OpenStreams("get", limits.max_gets, limits.stall_seconds)
        self._watches = OpenStreams("watch", limits.max_watches, limits.stall_seconds)

    async def Hello(
        self, request: kv_store_pb2.HelloRequest, context: Context
    ) -> kv_store_pb2.HelloResponse:
        """Accept a peer with a common protocol version and, if it sends one, a layout that fits.

        Raises PeerRefusedError, InvalidRequestError.
        """
        protocol = agree_protocol(request.protocol)
        if request.HasField("layout"):
            check_block_size(store_layout(request.layout), self._budget)
        shared = None if self._shared is None else shared_memory(self._shared)
        return kv_store_pb2.HelloResponse(
            protocol=protocol, store_id=self.store_id, shared_memory=shared
        )

    async def Put(
        self, request_iterator: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[kv_store_pb2.PutResponse]:
        """Store blocks. Any error ends the stream; blocks that it did not publish are dropped."""
        with self._puts.opened():
            session = PutSession(self._store, self._budget, self._tenants, window=WINDOW_CHUNKS)
            stream = PutStream(
                session,
                context.read,
                self._stall_seconds,
                has_shared_memory=self._shared is not None,
            )
            await self._puts.send(stream.responses(), context)
        for response in _NOTHING:
            yield response

    async def Get(
        self, request_iterator: AsyncIterator[Any], context: Context
    ) -> AsyncIterator[Any]:
        """Send blocks, or their places in shared memory."""
        with self._gets.opened():
            stream = GetStream(
                self._store,
                context.read,
                self._stall_seconds,
                has_shared_memory=self._shared is not None,
            )
            await self._gets.send(stream.responses(), context)
        for response in _NOTHING:
            yield response

    async def Exist(
        self, request: kv_store_pb2.ExistRequest, context: Context
    ) -> kv_store_pb2.ExistResponse:
        """Return which blocks are there. Raises InvalidRequestError."""
        layout = store_layout(request.layout)
        names = split_names(request.names)
        if len(names) * ID_BYTES != len(request.names):
            raise InvalidRequestError("a name is there twice", field="names")
        groups = range(len(layout.group_bytes))
        blocks = [[BlockKey(layout.layout_id, group, name) for group in groups] for name in names]
        found = await self._store.find([key for block in blocks for key in block])
        bits = [found.issuperset(block) for block in blocks]
        EXIST_NAMES.labels("held").inc(sum(bits))
        EXIST_NAMES.labels("missing").inc(len(bits) - sum(bits))
        return kv_store_pb2.ExistResponse(is_there=join_bits(bits))

    async def Pin(
        self, request: kv_store_pb2.PinRequest, context: Context
    ) -> kv_store_pb2.PinResponse:
        """Pin the blocks that the store has. Raises InvalidRequestError, OverloadedError."""
        layout = store_layout(request.layout)
        keys: list[BlockKey] = []
        missing = []
        for name in split_names(request.names):
            groups = range(len(layout.group_bytes))
            block = [BlockKey(layout.layout_id, group, name) for group in groups]
            if all(map(self._store.holds, block)):
                keys += block
            else:
                missing.append(name)
        seconds = request.lease_ms / 1000
        lease_id = self._leases.pin(keys, seconds, time.monotonic())
        self._expire()
        return kv_store_pb2.PinResponse(lease_id=lease_id, missing_names=join_names(missing))

    def _expire(self) -> None:
        """End the leases that are over, and schedule the same for the next one.

        The next Pin may come much later, and memory needs the room before.
        """
        now = time.monotonic()
        self._leases.expire(now)
        PINNED.set(self._leases.num_pinned)
        if self._expiry is not None:
            self._expiry.cancel()
        next_end = self._leases.next_end()
        loop = asyncio.get_running_loop()
        self._expiry = (
            loop.call_later(next_end - now, self._expire) if next_end is not None else None
        )

    async def Release(
        self, request: kv_store_pb2.ReleaseRequest, context: Context
    ) -> kv_store_pb2.ReleaseResponse:
        """End a lease; a lease that is over is not an error."""
        self._leases.release(request.lease_id)
        PINNED.set(self._leases.num_pinned)
        return kv_store_pb2.ReleaseResponse()

    async def Delete(
        self, request: kv_store_pb2.DeleteRequest, context: Context
    ) -> kv_store_pb2.DeleteResponse:
        """Remove the blocks of a tenant from every tier."""
        tenant = request.tenant if request.HasField("tenant") else DEFAULT_TENANT
        self._tenants.check(tenant)
        num_blocks = await self._store.delete_tenant(tenant)
        return kv_store_pb2.DeleteResponse(num_blocks=num_blocks)

    async def Stats(
        self, request: kv_store_pb2.StatsRequest, context: Context
    ) -> kv_store_pb2.StatsResponse:
        """Return the state of every tier."""
        tiers = [tier_stats(state) for state in self._store.states()]
        return kv_store_pb2.StatsResponse(tiers=tiers)

    async def GetStacks(
        self, request: kv_store_pb2.GetStacksRequest, context: Context
    ) -> kv_store_pb2.GetStacksResponse:
        """Return where the code of this store is."""
        stacks = stacks_to_message(own_stacks("kvstore", self.store_id.hex()))
        return kv_store_pb2.GetStacksResponse(stacks=stacks)

    async def WatchBlocks(
        self, request: kv_store_pb2.WatchBlocksRequest, context: Context
    ) -> AsyncIterator[kv_store_pb2.WatchBlocksResponse]:
        """Stream the stored names, then every change of them, until the peer leaves."""
        with self._watches.opened():
            stream = WatchStream(self._store, self._events, self.store_id)
            await self._watches.send(stream.responses(request), context)
        for response in _NOTHING:
            yield response
