"""A KV store over a real socket in this process, and a worker that speaks plain protobuf to it."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import grpc
import grpc.aio
import pytest

from pagewire_kvstore.adapters.content_service import AdapterBlobService
from pagewire_kvstore.adapters.create import create_keeper
from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.blocks.leases import Leases
from pagewire_kvstore.blocks.tenants import Tenants
from pagewire_kvstore.service import SERVICE_NAME, KvStoreService, add_service
from pagewire_kvstore.store.create import TierSettings, create_store
from pagewire_kvstore.streams.limits import StoreStreamLimits
from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2, kv_store_pb2_grpc
from pagewire_shared.kv.arena_folder import arena_facts
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.chunk_convert import KvPiece, checksum_of
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import kv_channel_options
from pagewire_shared.rpc.server import start_server

MIB = 1024 * 1024


def layout(*group_bytes, model=b"m"):
    return layout_pb2.KvLayout(
        model_fingerprint=model * 32,
        numerics_fingerprint=b"n" * 32,
        groups=[
            layout_pb2.CacheGroup(
                num_layers=2, block_size=16, bytes_per_block=size, num_shards=1, dtype="float32"
            )
            for size in group_bytes
        ],
    )


def name_of(number):
    return number.to_bytes(16, "big")


def names_in(data):
    return [data[start : start + 16] for start in range(0, len(data), 16)]


def payload_of(number, size, group=0):
    """Bytes that follow from name, size and group."""
    unit = b"%06d-%03d|" % (number, group)
    return (unit * (size // len(unit) + 1))[:size]


def chunk(number, data, *, group=0, offset=0, is_last=True, payload_checksum=None):
    """A chunk as a message; its checksum is right."""
    piece = KvPiece(name=name_of(number), group=group, offset=offset, is_last=is_last, data=data)
    return layout_pb2.KvChunk(
        name=piece.name,
        group=group,
        offset=offset,
        is_last=is_last,
        checksum=checksum_of(piece),
        payload_checksum=crc32c(data) if payload_checksum is None and is_last else payload_checksum,
        data=data,
    )


def announced(shape, *numbers, tenant=None, **more):
    names = b"".join(map(name_of, numbers))
    return kv_store_pb2.PutRequest(
        announce=kv_store_pb2.PutAnnounce(layout=shape, names=names, tenant=tenant, **more)
    )


def sent(*args, **options):
    return kv_store_pb2.PutRequest(chunk=chunk(*args, **options))


def to_publish(*numbers):
    names = b"".join(map(name_of, numbers))
    return kv_store_pb2.PutRequest(publish=kv_store_pb2.PutPublish(names=names))


def opened(shape, *numbers, **more):
    names = b"".join(map(name_of, numbers))
    return kv_store_pb2.GetRequest(open=kv_store_pb2.GetOpen(layout=shape, names=names, **more))


def granted(num_chunks):
    return kv_store_pb2.GetRequest(credit=kv_store_pb2.GetCredit(num_chunks=num_chunks))


class StoreServer:
    """The service and what lies behind it."""

    def __init__(self, store, events, leases, service, stub, channel, *, address, adapters):
        self.address = address
        self.adapters = adapters
        self.store = store
        self.events = events
        self.leases = leases
        self.service = service
        self.stub = stub
        self.channel = channel

    @property
    def num_streams(self):
        service = self.service
        return service._puts.num_open + service._gets.num_open + service._watches.num_open

    @property
    def held_bytes(self):
        return self.service._budget.used_bytes

    async def put(self, shape, *numbers, tenant=None):
        """Store blocks whose payloads follow from their numbers; those published."""
        call = self.stub.Put()
        await call.write(announced(shape, *numbers, tenant=tenant))
        wanted = await self.answer(call, "wanted")
        for name in names_in(wanted.names):
            number = int.from_bytes(name, "big")
            for group, part in enumerate(shape.groups):
                for request in chunks(number, part.bytes_per_block, group):
                    await call.write(request)
        await call.write(
            kv_store_pb2.PutRequest(publish=kv_store_pb2.PutPublish(names=wanted.names))
        )
        published = await self.answer(call, "published")
        await call.done_writing()
        assert await call.code() is grpc.StatusCode.OK
        return names_in(published.names)

    async def answer(self, call, kind):
        """The next answer that is no credit."""
        while True:
            response = await call.read()
            assert response is not grpc.aio.EOF, await call.details()
            if response.WhichOneof("message") != "credit":
                assert response.WhichOneof("message") == kind
                return getattr(response, kind)

    async def get(self, shape, *numbers, num_credits=1000):
        """Payloads by number and group, checked, and the numbers that are missing."""
        call = self.stub.Get()
        await call.write(opened(shape, *numbers))
        await call.write(granted(num_credits))
        parts, missing = {}, []
        while (response := await call.read()) is not grpc.aio.EOF:
            match response.WhichOneof("message"):
                case "missing":
                    missing += [int.from_bytes(n, "big") for n in names_in(response.missing.names)]
                case "chunk":
                    part = response.chunk
                    key = (int.from_bytes(part.name, "big"), part.group)
                    before = parts.get(key, b"")
                    assert part.offset == len(before)
                    parts[key] = before + part.data
                    if part.is_last:
                        assert crc32c(parts[key]) == part.payload_checksum
        assert await call.code() is grpc.StatusCode.OK, await call.details()
        return parts, missing


def chunks(number, size, group=0):
    """The requests that send one group of a block."""
    data = payload_of(number, size, group)
    for offset in range(0, size, MIB):
        part = data[offset : offset + MIB]
        is_last = offset + len(part) == size
        yield sent(
            number,
            part,
            group=group,
            offset=offset,
            is_last=is_last,
            payload_checksum=crc32c(data) if is_last else None,
        )


@contextlib.asynccontextmanager
async def store_server(
    *,
    memory_bytes=16 * MIB,
    disk=None,
    shared=None,
    redis=None,
    tenants=None,
    max_events=1000,
    adapter_bytes=16 * MIB,
    socket=None,
    **limits,
):
    """Yield a store that serves, at `socket` where that is given."""
    tenants = tenants or Tenants()
    events = EventLog(max_events)
    leases = Leases(100, 60.0, 1000)
    settings = TierSettings(
        memory_bytes=memory_bytes,
        shared_memory_path=shared,
        disk_path=disk,
        disk_bytes=None if disk is None else 64 * MIB,
        redis_url=redis,
        quota=tenants.quota,
    )
    store = create_store(settings, is_pinned=leases.is_pinned, events=events)
    keeper = create_keeper(disk, adapter_bytes)
    running = asyncio.create_task(store.run())
    service = KvStoreService(
        store=store,
        events=events,
        leases=leases,
        tenants=tenants,
        limits=StoreStreamLimits(**limits),
        shared=None if shared is None else arena_facts(shared),
    )
    adapters = AdapterBlobService(keeper, StoreStreamLimits(**limits))
    try:
        async with served(service, adapters, socket) as (address, channel):
            stub = kv_store_pb2_grpc.KvStoreServiceStub(channel)
            made = (store, events, leases, service, stub, channel)
            yield StoreServer(*made, address=address, adapters=keeper)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        keeper.close()
        store.close()


@contextlib.asynccontextmanager
async def served(service, adapters, socket):
    """Serve both; yield the address, and a channel to it."""

    def register(made):
        add_service(service, made)
        adapters.add_to(made)

    with tempfile.TemporaryDirectory() as folder:
        address = Address(path=str(socket or Path(folder) / "kv.sock"))
        server = await start_server(address, register, [SERVICE_NAME], setting="--listen")
        try:
            # Messages that are too long are for the store to refuse.
            options = [*kv_channel_options(), ("grpc.max_send_message_length", -1)]
            async with grpc.aio.insecure_channel(str(address), options=options) as channel:
                yield str(address), channel
        finally:
            await server.stop(0)


async def refused(call):
    """Read until the store ends the call; status and message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        while await asyncio.wait_for(call.read(), 20) is not grpc.aio.EOF:
            pass
    return caught.value.code(), from_rpc_error(caught.value).message


async def until(condition, seconds=10.0):
    """Wait until a condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def write_all(call, requests):
    """Write what the store may refuse half way."""
    with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for request in requests:
            await call.write(request)
