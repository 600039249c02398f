"""The calls of the service that are no streams, over a real socket."""

import asyncio

import grpc
import grpc.aio
import pytest

from pagewire_protos.common.v1 import layout_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.convert import protocol_range
from pagewire_shared.errors import PeerRefusedError
from pagewire_shared.rpc.errors import from_rpc_error
from support.processes.store_server import MIB, layout, name_of, names_in, store_server, until

SHAPE = layout(65536)


def pin(*numbers, lease_ms=60_000, shape=SHAPE):
    names = b"".join(map(name_of, numbers))
    return kv_store_pb2.PinRequest(names=names, lease_ms=lease_ms, layout=shape)


async def test_hello():
    async with store_server() as server:
        for shape in (None, SHAPE, layout(1, 2, 3)):
            request = kv_store_pb2.HelloRequest(protocol=protocol_range(), layout=shape)
            answer = await server.stub.Hello(request)
            assert answer.protocol == protocol_range().max
            assert answer.store_id == server.service.store_id
            assert len(answer.store_id) == 16


async def test_a_peer_of_another_protocol_or_of_no_layout_is_refused():
    async with store_server() as server:
        later = layout_pb2.ProtocolRange(min=90, max=99)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stub.Hello(kv_store_pb2.HelloRequest(protocol=later))
        assert isinstance(error := from_rpc_error(caught.value), PeerRefusedError)
        assert "90 to 99" in error.message
        for bad in (layout(0), layout(65 * MIB)):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await server.stub.Hello(
                    kv_store_pb2.HelloRequest(protocol=protocol_range(), layout=bad)
                )
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert from_rpc_error(caught.value).field == "layout.groups"


async def test_pinned_blocks_stay_until_their_lease_ends():
    async with store_server(memory_bytes=2 * 65536) as server:
        await server.put(SHAPE, 1, 2)
        answer = await server.stub.Pin(pin(1, 9))
        assert names_in(answer.missing_names) == [name_of(9)]
        await server.put(SHAPE, 3, 4)
        assert (await server.get(SHAPE, 1, 2, 3))[1] == [2, 3]
        await server.stub.Release(kv_store_pb2.ReleaseRequest(lease_id=answer.lease_id))
        await server.put(SHAPE, 5)
        await server.put(SHAPE, 6)
        assert (await server.get(SHAPE, 1, 5, 6))[1] == [1]


async def test_a_lease_ends_by_itself():
    async with store_server() as server:
        await server.put(SHAPE, 1)
        await server.stub.Pin(pin(1, lease_ms=60_000))
        await server.stub.Pin(pin(1, lease_ms=1))
        assert server.leases.num_leases in (1, 2)
        await until(lambda: server.leases.num_leases == 1)
        # Nothing but the service's own timer ends it.
        assert server.leases.num_pinned == 1


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pin(1, lease_ms=0), "lease_ms"),
        (pin(1, lease_ms=2**31), "lease_ms"),
        (pin(1, shape=None), "layout.model_fingerprint"),
        (pin(*range(5000)), "names"),
    ],
)
async def test_an_invalid_pin_is_refused(request_, field):
    async with store_server() as server:
        await server.put(SHAPE, 1)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stub.Pin(request_)
        assert from_rpc_error(caught.value).field == field
        assert server.leases.num_leases == 0


async def test_exist_has_a_bit_per_name():
    async with store_server() as server:
        await server.put(SHAPE, 1, 3, 9)
        names = b"".join(map(name_of, range(1, 11)))
        request = kv_store_pb2.ExistRequest(layout=SHAPE, names=names)
        assert (await server.stub.Exist(request)).is_there == bytes([0b101, 0b1])
        assert (await server.stub.Exist(kv_store_pb2.ExistRequest(layout=SHAPE))).is_there == b""
        other = kv_store_pb2.ExistRequest(layout=layout(4096), names=names)
        assert (await server.stub.Exist(other)).is_there == bytes(2), "of another layout"
        before = (await server.stub.Stats(kv_store_pb2.StatsRequest())).tiers[0]
        assert (before.num_hits, before.num_misses) == (0, 0), "nothing was loaded"


@pytest.mark.parametrize(
    ("names", "shape", "field"),
    [
        (name_of(1) * 2, SHAPE, "names"),
        (b"123", SHAPE, "names"),
        (b"".join(map(name_of, range(4097))), SHAPE, "names"),
        (name_of(1), None, "layout.model_fingerprint"),
    ],
)
async def test_an_invalid_exist_is_refused(names, shape, field):
    async with store_server() as server:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stub.Exist(kv_store_pb2.ExistRequest(layout=shape, names=names))
        assert from_rpc_error(caught.value).field == field


async def test_stats():
    async with store_server() as server:
        await server.put(SHAPE, 1, 2)
        await server.get(SHAPE, 1, 5)
        memory = (await server.stub.Stats(kv_store_pb2.StatsRequest())).tiers[0]
        assert memory.tier == "memory"
        assert (memory.num_blocks, memory.used_bytes) == (2, 2 * 65536)
        assert memory.capacity_bytes == 16 * 1024 * 1024
        assert (memory.num_hits, memory.num_misses) == (1, 1)
        assert not memory.HasField("fault")


async def test_delete_takes_the_blocks_of_one_tenant():
    async with store_server() as server:
        await server.put(SHAPE, 1, tenant="a")
        await server.put(SHAPE, 2, 3)
        assert (await server.stub.Delete(kv_store_pb2.DeleteRequest(tenant="a"))).num_blocks == 1
        assert (await server.get(SHAPE, 1, 2, 3))[1] == [1]
        assert (await server.stub.Delete(kv_store_pb2.DeleteRequest())).num_blocks == 2


async def test_invalid_bytes_are_refused():
    async with store_server() as server:
        for method in ("Pin", "Delete", "Hello"):
            call = server.channel.unary_unary(
                f"/pagewire.kvstore.v1.KvStoreService/{method}",
                request_serializer=bytes,
                response_deserializer=bytes,
            )
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asyncio.wait_for(call(b"\x0a\xff"), 10)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
