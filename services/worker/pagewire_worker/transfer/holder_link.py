"""Connections to workers that blocks are pulled from: dialled on demand, dropped on failure."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

import grpc.aio

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.worker.v1 import kv_transfer_pb2 as wire
from pagewire_shared.errors import InternalError, PagewireError, UnavailableError
from pagewire_shared.kv.arena import ArenaFacts
from pagewire_shared.kv.layers_convert import decode_response
from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import kv_channel_options
from pagewire_shared.security.claims import split_instance
from pagewire_shared.security.roles import LinkRole
from pagewire_worker.offload.shared_arena import SharedArena, open_arena
from pagewire_worker.transfer.incoming_layers import ArrivedLayers, IncomingLayers
from pagewire_worker.transfer.layer_seals import LayerSeals
from pagewire_worker.transfer.pull_client import Memory, PullClient
from pagewire_worker.transfer.pull_convert import (
    lent_from_message,
    open_to_message,
    staging_from_message,
)
from pagewire_worker.transfer_engines.engine import LentMemory
from pagewire_worker.transfer_engines.remote_memory import EngineReads, RemoteMemory

_logger = logging.getLogger(__name__)

_METHOD: Final = "/pagewire.worker.v1.KvTransferService/Pull"
_MAX_LINKS: Final = 64
READS_AGAIN_SECONDS: Final = 30.0
"""Without a library after it has failed."""

OnOpen = Callable[[PullClient, KvTransport], None]
"""Called with each accepted stream, before its first layers."""


class HolderLink:
    """One worker at one address.

    Args:
        address: Of its server, with `INSTANCE@` in front where its certificate has to be bound to
            an instance.
        may_share_memory: Whether this worker may map its memory.
        seals: See PullClient.
        reads: The library by which this worker may read its memory; None for none.
    """

    def __init__(
        self,
        address: str,
        worker_id: bytes,
        layout: layout_pb2.KvLayout,
        *,
        may_share_memory: bool,
        seals: LayerSeals | None = None,
        reads: EngineReads | None = None,
    ) -> None:
        self._reads = reads
        self._reads_from = 0.0
        self._lent: RemoteMemory | None = None
        self._reaching = asyncio.Lock()
        self._instance, self._address = split_instance(address)
        self._worker_id = worker_id
        self._layout = layout
        self._may_share_memory = may_share_memory
        self._seals = seals
        self._channel: grpc.aio.Channel | None = None
        self._arena: SharedArena | None = None
        self._arena_facts: ArenaFacts | None = None
        self._touching: asyncio.Task[None] | None = None
        self.num_open = 0
        """Pulls under way."""

    async def pull(
        self,
        names: Sequence[bytes],
        timeout_seconds: float,
        incoming: IncomingLayers,
        on_open: OnOpen,
    ) -> AsyncGenerator[ArrivedLayers, None]:
        """Yield verified layers as they come, until all have come or the holder has no more.

        Raises:
            PagewireError: The holder cannot be reached, refuses, is late or broke the contract.
        """
        end = time.monotonic() + timeout_seconds
        was_used = self._channel is not None
        self.num_open += 1
        try:
            try:
                async with aclosing(self._pull(names, end, incoming, on_open)) as layers:
                    async for one in layers:
                        yield one
                return
            except (UnavailableError, InternalError):
                # The channel may lead to a process that has ended and is back by now.
                if not was_used or incoming.has_any:
                    raise
            async with aclosing(self._pull(names, end, incoming, on_open)) as layers:
                async for one in layers:
                    yield one
        finally:
            self.num_open -= 1

    async def close(self) -> None:
        """Close the channel; its pulls end."""
        channel, self._channel = self._channel, None
        self._forget_lent()
        if channel is not None:
            await channel.close()

    async def _pull(
        self, names: Sequence[bytes], end: float, incoming: IncomingLayers, on_open: OnOpen
    ) -> AsyncGenerator[ArrivedLayers, None]:
        channel = self._dial()
        try:
            client, arena = await self._open(channel, names, end, incoming)
            try:
                on_open(client, _transport_of(arena))
                async with aclosing(client.layers(arena)) as layers:
                    async for one in layers:
                        yield one
            finally:
                client.cancel()
                if arena is not None and (client.is_damaged or arena.is_doubtful):
                    self._arena_facts = None  # the file may have been replaced
                    if isinstance(arena, RemoteMemory):
                        self._leave_library(arena)
        except grpc.RpcError as rpc_error:
            raise await self._failed(channel, from_rpc_error(rpc_error)) from rpc_error
        except UnavailableError as error:
            raise await self._failed(channel, error) from error
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # gRPC cancels the users of a stream when the channel was closed.
            raise UnavailableError("the connection to the worker was closed") from None

    async def _open(
        self,
        channel: grpc.aio.Channel,
        names: Sequence[bytes],
        end: float,
        incoming: IncomingLayers,
    ) -> tuple[PullClient, Memory | None]:
        """Return an accepted stream, and the holder's memory if its layers lie there."""
        client, accepted = await self._ask(channel, names, end, incoming)
        lent = lent_from_message(accepted, self._engine)
        if lent is not None:
            memory = await self._reach(lent)
            if memory is not None:
                return client, memory
            client.cancel()
            client, accepted = await self._ask(channel, names, end, incoming)
        facts = staging_from_message(accepted)
        if facts is None:
            return client, None
        arena = await self._shared(facts)
        if arena is not None:
            return client, arena
        # Another host, or another view of the same host: shared memory is not requested again.
        client.cancel()
        self._may_share_memory = False
        client, _ = await self._ask(channel, names, end, incoming)
        return client, None

    async def _ask(
        self,
        channel: grpc.aio.Channel,
        names: Sequence[bytes],
        end: float,
        incoming: IncomingLayers,
    ) -> tuple[PullClient, wire.PullAccepted]:
        seconds = max(0.001, end - time.monotonic())
        encode: Any = wire.PullRequest.SerializeToString
        method = channel.stream_stream(
            _METHOD, request_serializer=encode, response_deserializer=decode_response
        )
        client = PullClient(method(timeout=seconds), names, incoming, self._seals)
        request = open_to_message(
            list(names),
            layout=self._layout,
            worker_id=self._worker_id,
            seconds=seconds,
            use_shared_memory=self._may_share_memory,
            engine=self._engine,
        )
        try:
            return client, await client.open(request, seconds)
        except BaseException:
            client.cancel()
            raise

    @property
    def _engine(self) -> KvTransport | None:
        """The library to ask for; None for a while after it has failed."""
        if self._reads is None or time.monotonic() < self._reads_from:
            return None
        return self._reads.engine.transport

    async def _reach(self, lent: LentMemory) -> RemoteMemory | None:
        """Return the memory that the holder lends; None if the library does not reach it."""
        assert self._reads is not None, "a library was asked for"
        async with self._reaching:
            if self._lent is not None and self._lent.there == lent:
                return self._lent
            before, self._lent = self._lent, None
            try:
                self._lent = await self._reads.open(lent, before)
            except UnavailableError as error:
                self._reads_from = time.monotonic() + READS_AGAIN_SECONDS
                _logger.warning("%s; blocks come over gRPC meanwhile", error.message)
            return self._lent

    def _leave_library(self, memory: RemoteMemory) -> None:
        self._reads_from = time.monotonic() + READS_AGAIN_SECONDS
        _logger.warning(
            "%s could not be read by %s; blocks come over gRPC for %g s",
            *(self._address, memory.there.transport.value, READS_AGAIN_SECONDS),
        )
        if self._lent is memory:
            self._forget_lent()

    def _forget_lent(self) -> None:
        lent, self._lent = self._lent, None
        if lent is not None:
            lent.close()

    async def _shared(self, facts: ArenaFacts) -> SharedArena | None:
        if facts != self._arena_facts:
            self._arena = await asyncio.to_thread(open_arena, facts)
            self._arena_facts = None if self._arena is None else facts
            if self._arena is not None:
                self._touching = asyncio.create_task(asyncio.to_thread(self._arena.touch))
        return self._arena

    def _dial(self) -> grpc.aio.Channel:
        if self._channel is None:
            # With its own pool: a new channel must not wait out the backoff of an old one.
            options = [*kv_channel_options(), ("grpc.use_local_subchannel_pool", 1)]
            self._channel = open_channel(
                self._address, LinkRole.WORKER, options, instance=self._instance
            )
        return self._channel

    async def _failed(self, channel: grpc.aio.Channel, error: PagewireError) -> PagewireError:
        """Return `error`; close the channel if its worker is gone, to be dialled anew."""
        if isinstance(error, UnavailableError | InternalError) and channel is self._channel:
            await self.close()
        return error


def _transport_of(memory: Memory | None) -> KvTransport:
    if memory is None:
        return KvTransport.GRPC
    if isinstance(memory, RemoteMemory):
        return memory.there.transport
    return KvTransport.SHARED_MEMORY


class HolderLinks:
    """Links by address and worker; the least recently used idle ones are closed.

    Args:
        layout, may_share_memory, seals, reads: See HolderLink.
    """

    def __init__(
        self,
        layout: layout_pb2.KvLayout,
        *,
        may_share_memory: bool,
        seals: LayerSeals | None = None,
        reads: EngineReads | None = None,
    ) -> None:
        self._layout = layout
        self._may_share_memory = may_share_memory
        self._seals = seals
        self._reads = reads
        self._links: OrderedDict[tuple[str, bytes], HolderLink] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def to(self, address: str, worker_id: bytes) -> HolderLink:
        """Return the link to a worker."""
        key = (address, worker_id)
        if key not in self._links:
            self._links[key] = HolderLink(
                address,
                worker_id,
                self._layout,
                may_share_memory=self._may_share_memory,
                seals=self._seals,
                reads=self._reads,
            )
        self._links.move_to_end(key)
        self._close_idle()
        return self._links[key]

    async def close(self) -> None:
        """Close all links."""
        links, self._links = self._links, OrderedDict()
        await asyncio.gather(*(link.close() for link in links.values()), *self._closing)

    def _close_idle(self) -> None:
        idle = [key for key, link in list(self._links.items())[:-1] if link.num_open == 0]
        for key in idle[: max(0, len(self._links) - _MAX_LINKS)]:
            task = asyncio.create_task(self._links.pop(key).close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
