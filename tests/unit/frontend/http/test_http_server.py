"""The socket of the HTTP side."""

import asyncio
import http.client
import socket

from fastapi import FastAPI

from pagewire_frontend.http.server.limits import ConnectionLimits
from pagewire_frontend.http.server.server import HttpServer
from pagewire_shared.rpc.address import Address


async def test_answers_are_not_held_back_by_the_kernel():
    """asyncio sets TCP_NODELAY only on what says that it is TCP."""
    server = HttpServer(FastAPI(), Address(host="127.0.0.1", port=0), grace_seconds=1)
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        option = (socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted.set_result(writer.get_extra_info("socket").getsockopt(*option))
        writer.close()

    async with await asyncio.start_server(connected, sock=server._socket):
        _, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        assert await asyncio.wait_for(accepted, 5) != 0
        writer.close()
    server.close()


async def test_a_client_that_takes_nothing_is_cut():
    ended = asyncio.Event()

    async def endless(scope, receive, send):
        async def write():
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while True:
                await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})

        writing = asyncio.create_task(write())
        while (await receive())["type"] != "http.disconnect":
            continue
        writing.cancel()
        ended.set()

    address = Address(host="127.0.0.1", port=0)
    limits = ConnectionLimits(stall_seconds=0.3)
    server = HttpServer(endless, address, grace_seconds=1, limits=limits)
    running = asyncio.create_task(server.run())
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", server.address.port)
        writer.transport.pause_reading()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.wait_for(ended.wait(), 10)
        writer.transport.abort()
    finally:
        await server.stop()
        await running
        server.close()


async def test_a_client_that_ends_the_connection_gets_the_answer_to_a_body_that_is_too_large():
    """It sends all of its body before it reads, as urllib does, more than kernels hold."""

    async def refuse(scope, receive, send):
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    def post(port: int) -> tuple[int, bytes, str | None]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("POST", "/", b"x" * 2**25, {"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("connection")

    server = HttpServer(refuse, Address(host="127.0.0.1", port=0), grace_seconds=1)
    running = asyncio.create_task(server.run())
    try:
        for _ in range(3):
            found = await asyncio.to_thread(post, server.address.port)
            assert found == (413, b"no", "close")
    finally:
        await server.stop()
        await running
        server.close()
