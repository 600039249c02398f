"""Put over a real socket, from a client that speaks plain protobuf."""

import asyncio

import grpc
import grpc.aio
import pytest

from pagewire_kvstore.blocks.tenants import Tenants
from pagewire_protos.kvstore.v1 import kv_store_pb2
from support.processes.store_server import (
    MIB,
    announced,
    layout,
    name_of,
    names_in,
    payload_of,
    refused,
    sent,
    store_server,
    to_publish,
    until,
    write_all,
)

SHAPE = layout(1000)


async def test_a_block_that_was_put_can_be_loaded():
    async with store_server() as server:
        two_groups = layout(2 * MIB + 5, 700)
        assert await server.put(two_groups, 1, 2) == [name_of(1), name_of(2)]
        parts, missing = await server.get(two_groups, 1, 3, 2)
        assert missing == [3]
        assert parts == {
            (number, group): payload_of(number, size, group)
            for number in (1, 2)
            for group, size in enumerate((2 * MIB + 5, 700))
        }
        assert server.held_bytes == 0


async def test_only_missing_blocks_are_wanted():
    async with store_server() as server:
        await server.put(SHAPE, 1)
        call = server.stub.Put()
        await call.write(announced(SHAPE, 1, 2, 2))
        wanted = await server.answer(call, "wanted")
        assert names_in(wanted.names) == [name_of(2)]
        assert wanted.declined == b""
        await call.write(announced(SHAPE, 2))
        assert (await server.answer(call, "wanted")).names == b""
        call.cancel()


async def test_one_stream_carries_layouts_and_tenants():
    async with store_server() as server:
        other = layout(1000, model=b"o")
        call = server.stub.Put()
        for shape, number, tenant in ((SHAPE, 1, None), (other, 2, "a"), (SHAPE, 3, "b")):
            await call.write(announced(shape, number, tenant=tenant))
            await call.write(sent(number, payload_of(number, 1000)))
        await call.write(to_publish(1, 2, 3))
        for _ in range(3):
            await server.answer(call, "wanted")
        published = await server.answer(call, "published")
        assert names_in(published.names) == [name_of(number) for number in (1, 2, 3)]
        assert (await server.get(SHAPE, 1, 2, 3))[1] == [2]
        assert (await server.get(other, 1, 2, 3))[1] == [1, 3]
        assert (await server.stub.Delete(kv_store_pb2.DeleteRequest(tenant="b"))).num_blocks == 1
        assert (await server.get(SHAPE, 1, 3))[1] == [3]


async def test_credit_comes_as_chunks_are_taken_in():
    async with store_server() as server:
        shape = layout(100)
        call = server.stub.Put()
        numbers = range(100)
        await call.write(announced(shape, *numbers))
        num_free = num_granted = 0
        for number in numbers:
            while not num_free:
                response = await asyncio.wait_for(call.read(), 10)
                num_free += response.credit.num_chunks
                num_granted += response.credit.num_chunks
            num_free -= 1
            await call.write(sent(number, payload_of(number, 100)))
        assert 100 <= num_granted <= 100 + 16
        await call.write(to_publish(*numbers))
        assert len((await server.answer(call, "published")).names) == 1600


def changed(request, **fields):
    for field, value in fields.items():
        setattr(request.chunk, field, value)
    return request


def whole(number=1):
    return sent(number, payload_of(number, 1000))


BAD = {
    "a damaged chunk": ([changed(whole(), data=b"x" * 1000)], "another checksum"),
    "another payload": ([changed(whole(), payload_checksum=1)], "another checksum than its"),
    "wrong size": ([sent(1, b"x" * 999)], "no more will"),
    "too long": ([sent(1, b"x" * 1001)], "1001 came"),
    "not wanted": ([whole(7)], "not announced"),
    "out of order": ([sent(1, b"x" * 10, offset=10, is_last=False)], "byte 0 is next"),
    "twice": ([whole(), whole()], "byte 1000 is next"),
    "no such group": ([sent(1, b"x" * 1000, group=1)], "no group 1"),
    "layers": ([changed(whole(), num_layers=2)], "another checksum"),
    "oversize chunk": ([sent(1, b"x" * (MIB + 1))], "at most 1048576"),
    "oversize message": ([sent(1, b"x" * (17 * MIB))], "larger than max"),
    "a short name": ([changed(whole(), name=b"short")], "16 bytes, not 5"),
    "not complete": ([to_publish(1)], "not complete"),
    "half of it": (
        [sent(1, b"x" * 10, is_last=False), to_publish(1)],
        "not complete",
    ),
    "not announced": ([to_publish(9)], "not complete"),
    "no message": ([kv_store_pb2.PutRequest()], "without a message"),
    "names cut off": (
        [kv_store_pb2.PutRequest(publish=kv_store_pb2.PutPublish(names=b"x" * 17))],
        "17 together",
    ),
    "too many names": ([announced(SHAPE, *range(5000))], "at most 4096"),
    "no layout": ([announced(None, 1)], "model_fingerprint"),
    "checksums of chunks": (
        [kv_store_pb2.PutRequest(publish=kv_store_pb2.PutPublish(checksums=b"1234"))],
        "1 checksums for 0 payloads",
    ),
    "a checksum of a block in chunks": (
        [
            kv_store_pb2.PutRequest(
                publish=kv_store_pb2.PutPublish(names=name_of(1), checksums=b"1234")
            )
        ],
        "no place in shared memory",
    ),
    "checksums cut off": (
        [kv_store_pb2.PutRequest(publish=kv_store_pb2.PutPublish(checksums=b"12345"))],
        "4 bytes each",
    ),
    "a block that never fits": ([announced(layout(65 * MIB), 1)], "half of --put-buffer-size"),
    "a long tenant": ([announced(SHAPE, 1, tenant="t" * 2000)], "1024 bytes"),
}


@pytest.mark.parametrize(("requests", "message"), BAD.values(), ids=BAD)
async def test_an_invalid_request_ends_the_stream_and_publishes_nothing(requests, message):
    async with store_server() as server:
        call = server.stub.Put()
        await call.write(announced(SHAPE, 1, 2))
        await server.answer(call, "wanted")
        await call.write(sent(2, payload_of(2, 1000)))
        await write_all(call, requests)
        code, details = await refused(call)
        assert message in details
        assert code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert (await server.get(SHAPE, 1, 2))[1] == [1, 2]
        assert server.held_bytes == 0


async def test_a_stream_that_ends_early_leaves_nothing_behind():
    async with store_server() as server:
        for end in ("cancel", "done_writing"):
            call = server.stub.Put()
            await call.write(announced(SHAPE, 1, 2))
            await server.answer(call, "wanted")
            await call.write(whole())
            await call.write(sent(2, b"x" * 10, is_last=False))
            await until(lambda: server.held_bytes == 2000)
            if end == "cancel":
                call.cancel()
            else:
                await call.done_writing()
                assert await call.code() is grpc.StatusCode.OK
            await until(lambda: server.held_bytes == 0 and server.num_streams == 0)
        assert (await server.get(SHAPE, 1, 2))[1] == [1, 2]
        assert server.events.next_sequence == 1


async def test_a_writer_that_stalls_on_a_block_is_ended():
    async with store_server(stall_seconds=0.1) as server:
        idle = server.stub.Put()
        assert (await idle.read()).credit.num_chunks > 0
        call = server.stub.Put()
        await call.write(announced(SHAPE, 1))
        await call.write(sent(1, b"x" * 10, is_last=False))
        code, details = await refused(call)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "nothing was sent for 0.1 seconds" in details
        assert server.held_bytes == 0
        # One that owes nothing may be silent.
        await idle.write(announced(SHAPE, 1))
        assert (await server.answer(idle, "wanted")).names == name_of(1)
        idle.cancel()


async def test_incoming_bytes_are_bounded_over_all_streams():
    async with store_server(max_put_bytes=10_000) as server:
        calls = [server.stub.Put() for _ in range(3)]
        num_wanted, declined = [], []
        for call in calls:
            await call.write(announced(SHAPE, *range(20)))
            wanted = await server.answer(call, "wanted")
            num_wanted.append(len(wanted.names) // 16)
            declined.append(names_in(wanted.declined))
        assert num_wanted == [5, 5, 0]
        assert declined == [[name_of(n) for n in range(start, 20)] for start in num_wanted]
        assert server.held_bytes == 10_000
        for call in calls:
            call.cancel()
        await until(lambda: server.held_bytes == 0)


async def test_too_many_streams_are_refused():
    async with store_server(max_puts=1) as server:
        first = server.stub.Put()
        await first.read()
        code, details = await refused(server.stub.Put())
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 put streams" in details
        first.cancel()
        await until(lambda: server.num_streams == 0)
        assert await server.put(SHAPE, 1) == [name_of(1)]


async def test_tenants():
    tenants = Tenants(None, {"small": 500, "big": 100_000}, known_only=True)
    async with store_server(tenants=tenants) as server:
        call = server.stub.Put()
        await write_all(call, [announced(SHAPE, 1, tenant="stranger")])
        code, details = await refused(call)
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "'stranger' is not known" in details
        assert await server.put(SHAPE, 1, tenant="small") == []
        assert await server.put(SHAPE, 1, tenant="big") == [name_of(1)]
        assert await server.put(SHAPE, 2) == [name_of(2)]


async def test_blocks_without_room_are_absent_from_published():
    async with store_server(memory_bytes=2 * 65536) as server:
        shape = layout(65536)
        await server.put(shape, 1, 2)
        await server.stub.Pin(
            kv_store_pb2.PinRequest(layout=shape, names=name_of(2), lease_ms=60_000)
        )
        call = server.stub.Put()
        await call.write(announced(shape, 3, 4))
        await server.answer(call, "wanted")
        for number in (3, 4):
            await call.write(sent(number, payload_of(number, 65536)))
        await call.write(to_publish(3))
        assert (await server.answer(call, "published")).names == name_of(3)
        await server.stub.Pin(
            kv_store_pb2.PinRequest(layout=shape, names=name_of(3), lease_ms=60_000)
        )
        await call.write(to_publish(4))
        assert (await server.answer(call, "published")).names == b""
        call.cancel()
        assert (await server.get(shape, 2, 3, 4))[1] == [4]
