"""A bit flipped anywhere in what a worker sends: nothing that was damaged is ever served."""

import asyncio
import random

import grpc.aio

from support.processes.store_server import (
    announced,
    layout,
    payload_of,
    sent,
    store_server,
    to_publish,
    write_all,
)

IDENTITY = {"request_serializer": bytes, "response_deserializer": bytes}


async def was_refused(call):
    try:
        await call.done_writing()
        while await asyncio.wait_for(call.read(), 10) is not grpc.aio.EOF:
            pass
    except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
        return True
    return False


async def test_nothing_damaged_on_the_wire_is_ever_served():
    generator = random.Random(7)
    async with store_server() as server:
        shape = layout(300)
        put = server.channel.stream_stream("/pagewire.kvstore.v1.KvStoreService/Put", **IDENTITY)
        num_refused = 0
        for number in range(1000):
            messages = [
                request.SerializeToString()
                for request in (
                    announced(shape, number),
                    sent(number, payload_of(number, 300)),
                    to_publish(number),
                )
            ]
            which = generator.randrange(3)
            damaged = bytearray(messages[which])
            bit = generator.randrange(8 * len(damaged))
            damaged[bit // 8] ^= 1 << (bit % 8)
            messages[which] = bytes(damaged)
            call = put()
            await write_all(call, messages)
            num_refused += await was_refused(call)
        # A layout in which a bit was flipped is another layout: a miss, and no harm done.
        assert num_refused > 600
        served, _ = await server.get(shape, *range(1000))
        for (number, _), payload in served.items():
            assert payload == payload_of(number, 300)
        assert len(served) < 50
        assert server.held_bytes == 0
