"""Connections that ask nothing: they make room for those that do, and nobody is just cut off."""

import asyncio
import contextlib

import pytest

from pagewire_frontend.http.server.limits import ConnectionLimits
from pagewire_frontend.http.server.server import HttpServer
from pagewire_shared.rpc.address import Address

ASK = b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n"


class App:
    """Answers when it may."""

    def __init__(self):
        self.may_answer = asyncio.Event()
        self.num_asked = 0

    async def __call__(self, scope, receive, send):
        self.num_asked += 1
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def serving(**limits):
    app = App()
    server = HttpServer(
        app,
        Address(host="127.0.0.1", port=0),
        grace_seconds=1,
        limits=ConnectionLimits(head_seconds=60, **limits),
    )
    task = asyncio.create_task(server.run())
    opened = []

    async def connect():
        reader, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        opened.append(writer)
        return reader, writer

    try:
        yield app, connect
    finally:
        app.may_answer.set()
        for writer in opened:
            writer.close()
        await server.stop()
        await task
        server.close()


async def is_cut(reader):
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(10):
            return await reader.read(1) == b""
    return True


async def status(reader, writer):
    writer.write(ASK)
    async with asyncio.timeout(10):
        line = await reader.readline()
    return int(line.split()[1])


async def test_silent_connections_do_not_keep_others_out():
    async with serving(max_connections=8) as (app, connect):
        app.may_answer.set()
        silent = [await connect() for _ in range(8 + 80)]
        for _ in range(3):
            assert await status(*await connect()) == 200
        # The oldest went first.
        assert await is_cut(silent[0][0])


async def test_at_the_limit_there_is_an_answer_and_no_reset():
    async with serving(max_connections=4) as (app, connect):
        for _ in range(4):
            _, writer = await connect()
            writer.write(ASK)
        async with asyncio.timeout(10):
            while app.num_asked < 4:
                await asyncio.sleep(0.01)
        for _ in range(70):
            assert await status(*await connect()) == 503


@pytest.mark.parametrize(("most", "num_left"), [(3, 3), (0, 10)])
async def test_idle_connections_of_one_address_are_bounded(most, num_left, monkeypatch):
    from pagewire_frontend.http.server import idle_connections

    monkeypatch.setattr(idle_connections, "is_own", lambda address: False)
    async with serving(max_idle_per_address=most) as (app, connect):
        app.may_answer.set()
        pairs = [await connect() for _ in range(10)]
        await asyncio.sleep(0.3)
        left = [pair for pair in pairs if not pair[0].at_eof()]
        assert len(left) == num_left
        # One that asks is not idle.
        assert await status(*left[0]) == 200


async def test_connections_of_this_host_are_not_counted():
    async with serving(max_idle_per_address=2) as (_, connect):
        pairs = [await connect() for _ in range(10)]
        await asyncio.sleep(0.3)
        assert not [pair for pair in pairs if pair[0].at_eof()]
