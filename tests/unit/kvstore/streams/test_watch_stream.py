"""WatchBlocks over a real socket: nothing is missed, and nobody waits for a slow watcher."""

import asyncio

import grpc
import pytest

from pagewire_kvstore.blocks.event_log import BlockChange
from pagewire_kvstore.blocks.types import BlockKey, BlockRecord
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_shared.kv.checksum import crc32c
from support.processes.store_server import layout, name_of, names_in, refused, store_server, until

SHAPE = layout(1000)


def watch(server, **request):
    return server.stub.WatchBlocks(kv_store_pb2.WatchBlocksRequest(**request))


async def next_event(call):
    response = await asyncio.wait_for(call.read(), 10)
    kind = response.WhichOneof("event")
    names = [] if kind == "cleared" else names_in(getattr(response, kind).names)
    # The names of one event have no order.
    return response.sequence, kind, sorted(int.from_bytes(name, "big") for name in names)


async def test_a_listing_comes_before_events():
    async with store_server() as server:
        await server.put(SHAPE, 1, 2)
        call = watch(server)
        assert await next_event(call) == (2, "stored", [1, 2])
        await server.put(SHAPE, 3, tenant="t")
        assert await next_event(call) == (3, "stored", [3])
        await server.stub.Delete(kv_store_pb2.DeleteRequest(tenant="t"))
        assert await next_event(call) == (4, "removed", [3])
        call.cancel()
        await until(lambda: server.num_streams == 0)
        assert not server.events._watchers


async def test_an_empty_listing_carries_the_position():
    async with store_server() as server:
        call = watch(server)
        assert await next_event(call) == (0, "stored", [])
        await server.put(SHAPE, 1)
        assert await next_event(call) == (1, "stored", [1])
        call.cancel()


async def test_a_watcher_resumes_at_its_position():
    async with store_server() as server:
        await server.put(SHAPE, 1, 2, 3)
        call = watch(server, from_sequence=2, store_id=server.service.store_id)
        assert [await next_event(call) for _ in range(2)] == [
            (2, "stored", [2]),
            (3, "stored", [3]),
        ]
        await server.put(SHAPE, 4)
        assert await next_event(call) == (4, "stored", [4])
        call.cancel()


@pytest.mark.parametrize("reason", ["another store", "too old", "yet to come"])
async def test_a_watcher_that_cannot_resume_is_cleared_and_gets_a_listing(reason):
    async with store_server(max_events=2) as server:
        await server.put(SHAPE, 1, 2, 3)
        sequence = {"another store": 3, "too old": 1, "yet to come": 9}[reason]
        store_id = b"x" * 16 if reason == "another store" else server.service.store_id
        call = watch(server, from_sequence=sequence, store_id=store_id)
        assert await next_event(call) == (3, "cleared", [])
        assert await next_event(call) == (3, "stored", [1, 2, 3])
        await server.put(SHAPE, 4)
        assert await next_event(call) == (4, "stored", [4])
        call.cancel()


async def test_a_long_listing_comes_in_parts(monkeypatch):
    async with store_server() as server:
        names = [name_of(number) for number in range(10_000)]
        monkeypatch.setattr(server.store, "names", lambda: names)
        call = watch(server)
        parts = [await next_event(call) for _ in range(3)]
        assert [len(part[2]) for part in parts] == [4096, 4096, 1808]
        assert {part[:2] for part in parts} == {(0, "stored")}
        call.cancel()


async def test_a_watcher_too_slow_for_the_log_gets_a_listing_again():
    async with store_server(max_events=50) as server:
        call = watch(server)
        assert await next_event(call) == (0, "stored", [])
        server.events.add(BlockChange.STORED, [name_of(1)])
        assert await next_event(call) == (1, "stored", [1])
        server.store.put([record(7)])
        for number in range(60):
            server.events.add(BlockChange.STORED, [name_of(number)])
        assert await next_event(call) == (62, "cleared", [])
        assert await next_event(call) == (62, "stored", [7])
        server.events.add(BlockChange.REMOVED, [name_of(7)])
        assert await next_event(call) == (63, "removed", [7])
        call.cancel()


def record(number):
    key = BlockKey(b"L" * 16, 0, name_of(number))
    return BlockRecord(key, "", b"payload", crc32c(b"payload"))


async def test_a_stalled_watcher_is_ended():
    async with store_server(stall_seconds=0.2, max_events=500) as server:
        call = watch(server)
        await until(lambda: server.num_streams == 1)
        names = [name_of(number) for number in range(4096)]
        for _ in range(400):
            server.events.add(BlockChange.STORED, names)
        await until(lambda: server.service._watches.num_stalled == 1)
        assert not server.events._watchers
        assert (await refused(call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: server.num_streams == 0)


async def test_too_many_watchers_are_refused():
    async with store_server(max_watches=1) as server:
        call = watch(server)
        await next_event(call)
        code, message = await refused(watch(server))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "1 watch streams" in message
        call.cancel()
