"""Get over a real socket, from a client that speaks plain protobuf."""

import asyncio

import grpc
import grpc.aio
import pytest

from pagewire_kvstore.streams.metrics import GET_BYTES, GRPC
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.kv import streams as kv_streams
from pagewire_shared.kv.arena import Arena
from pagewire_shared.kv.checksum import crc32c
from pagewire_shared.kv.chunk_convert import KvPiece
from support.processes.store_server import (
    MIB,
    granted,
    layout,
    name_of,
    names_in,
    opened,
    payload_of,
    refused,
    store_server,
    until,
)

SHAPE = layout(1000)


def kinds(responses):
    return [response.WhichOneof("message") for response in responses]


async def all_of(call):
    responses = []
    while (response := await asyncio.wait_for(call.read(), 10)) is not grpc.aio.EOF:
        responses.append(response)
    return responses


async def test_a_miss_does_not_end_the_stream_and_the_first_is_sent_at_once():
    async with store_server() as server:
        await server.put(SHAPE, 1, 5)
        call = server.stub.Get()
        await call.write(opened(SHAPE, 0, 1, 2, 3, 4, 5, 6))
        await call.write(granted(10))
        responses = await all_of(call)
        assert kinds(responses) == ["missing", "source", "chunk", "missing", "chunk", "missing"]
        told = [names_in(r.missing.names) for r in responses if r.HasField("missing")]
        assert told == [[name_of(0)], [name_of(2), name_of(3), name_of(4)], [name_of(6)]]
        assert responses[1].source.tier == "memory"


async def test_a_stream_without_hits_waits_for_the_first_credit():
    """gRPC fails the reader's write, and with it the whole call, when it does."""
    async with store_server() as server:
        for _ in range(20):
            call = server.stub.Get()
            await call.write(opened(SHAPE, 0))
            assert kinds([await call.read()]) == ["missing"]
            await call.write(granted(1))
            assert await all_of(call) == []
            assert await call.code() is grpc.StatusCode.OK


async def test_chunks_are_one_mebibyte_and_the_last_has_the_checksum_of_the_whole():
    async with store_server() as server:
        shape = layout(2 * MIB + 7)
        await server.put(shape, 1)
        call = server.stub.Get()
        await call.write(opened(shape, 1))
        await call.write(granted(10))
        chunks = [r.chunk for r in await all_of(call) if r.HasField("chunk")]
        assert [len(chunk.data) for chunk in chunks] == [MIB, MIB, 7]
        assert [chunk.HasField("payload_checksum") for chunk in chunks] == [False, False, True]
        assert chunks[-1].payload_checksum == crc32c(payload_of(1, 2 * MIB + 7))


async def test_no_more_chunks_than_credits():
    async with store_server() as server:
        await server.put(SHAPE, *range(5))
        call = server.stub.Get()
        await call.write(opened(SHAPE, *range(5)))
        await call.write(granted(2))
        assert kinds([await call.read() for _ in range(3)]) == ["source", "chunk", "chunk"]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(read := asyncio.ensure_future(call.read())), 0.1)
        await call.write(granted(3))
        assert (await read).HasField("chunk")
        assert kinds(await all_of(call)) == ["chunk", "chunk"]


async def test_another_layout_is_a_miss():
    async with store_server() as server:
        await server.put(SHAPE, 1)
        assert await server.get(layout(1000, model=b"o"), 1) == ({}, [1])
        assert await server.get(layout(1000, 1000), 1) == ({}, [1])


@pytest.mark.parametrize("size", [1000, MIB + 1000])
async def test_the_reader_detects_damage_in_memory(size, monkeypatch):
    async with store_server() as server:
        shape = layout(size)
        await server.put(shape, 1)
        view = Arena.view

        def damaged(arena, offset, num_bytes):
            data = bytearray(view(arena, offset, num_bytes))
            data[17] ^= 4
            return memoryview(data)

        monkeypatch.setattr(Arena, "view", damaged)
        get = server.channel.stream_stream(
            "/pagewire.kvstore.v1.KvStoreService/Get",
            request_serializer=kv_store_pb2.GetRequest.SerializeToString,
            response_deserializer=kv_streams.deserializer(kv_store_pb2.GetResponse),
        )
        call = get()
        await call.write(opened(shape, 1))
        await call.write(granted(10))
        pieces = [r for r in await all_of(call) if isinstance(r, KvPiece)]
        payload = b"".join(piece.data for piece in pieces)
        assert payload != payload_of(1, size)
        whole = crc32c(payload) == pieces[-1].payload_checksum
        assert not (whole and all(piece.data_checksum is not None for piece in pieces))


async def test_a_reader_without_credit_is_ended():
    async with store_server(stall_seconds=0.1) as server:
        await server.put(SHAPE, 1)
        call = server.stub.Get()
        await call.write(opened(SHAPE, 1))
        code, details = await refused(call)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "no credit" in details
        silent = server.stub.Get()
        assert (await refused(silent))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: server.num_streams == 0)


async def test_a_stalled_reader_is_ended_and_its_blocks_unpinned():
    async with store_server(stall_seconds=0.2) as server:
        shape = layout(MIB)
        await server.put(shape, *range(8))
        call = server.stub.Get()
        await call.write(opened(shape, *range(8)))
        await call.write(granted(1000))
        await until(lambda: server.service._gets.num_stalled == 1)
        # Nothing is held, so everything can be evicted.
        assert len(await server.put(shape, *range(100, 116))) == 16
        code, details = await refused(call)
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "nothing was taken for 0.2 seconds" in details
        await until(lambda: server.num_streams == 0)


BAD = {
    "credit first": ([granted(1)], "first message of a Get"),
    "nothing": ([kv_store_pb2.GetRequest()], "first message of a Get"),
    "opened twice": ([opened(SHAPE, 1), opened(SHAPE, 1)], "grants credit"),
    "too many names": ([opened(SHAPE, *range(5000))], "at most 4096"),
    "no layout": ([opened(None, 1)], "model_fingerprint"),
    "too much credit": ([opened(SHAPE, 1), granted(2**32 - 1)], "credits"),
}


@pytest.mark.parametrize(("requests", "message"), BAD.values(), ids=BAD)
async def test_invalid_requests_are_refused(requests, message):
    async with store_server() as server:
        await server.put(SHAPE, 1)
        call = server.stub.Get()
        for request in requests:
            await call.write(request)
        code, details = await refused(call)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert message in details


async def test_a_reader_that_ends_its_side_gets_chunks_up_to_its_credit():
    async with store_server() as server:
        await server.put(SHAPE, 1, 2)
        call = server.stub.Get(iter([opened(SHAPE, 1, 2), granted(2)]))
        assert kinds(await all_of(call)) == ["source", "chunk", "chunk"]
        call = server.stub.Get(iter([opened(SHAPE, 1, 2), granted(1)]))
        assert "ended its side" in (await refused(call))[1]


async def test_a_block_that_is_read_is_not_overwritten():
    async with store_server(memory_bytes=4 * MIB) as server:
        shape = layout(2 * MIB)
        await server.put(shape, 1, 2)
        call = server.stub.Get()
        await call.write(opened(shape, 1))
        await call.write(granted(1))
        first = [await call.read() for _ in range(2)][1].chunk
        assert await server.put(shape, 3) == [name_of(3)]
        await call.write(granted(1))
        last = (await all_of(call))[0].chunk
        assert first.data + last.data == payload_of(1, 2 * MIB)
        assert (await server.get(shape, 2))[1] == [2]


async def until_still(value):
    """Wait until a number was the same for a while, and not what it was at first."""
    first, last, num_same = value(), None, 0
    async with asyncio.timeout(10):
        while num_same < 20:
            await asyncio.sleep(0.005)
            num_same = num_same + 1 if value() == last != first else 0
            last = value()


async def test_a_reader_that_leaves_without_reading_leaves_no_pins(caplog):
    async with store_server() as server:
        shape = layout(MIB)
        await server.put(shape, *range(8))
        call = server.stub.Get()
        await call.write(opened(shape, *range(8)))
        await call.write(granted(1000))
        await until_still(lambda: GET_BYTES.labels("memory", GRPC)._value.get())
        assert server.num_streams == 1
        call.cancel()
        await until(lambda: server.num_streams == 0)
        assert len(await server.put(shape, *range(100, 116))) == 16
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
