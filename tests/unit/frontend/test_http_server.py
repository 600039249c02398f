"""The socket of the HTTP side."""

import asyncio
import socket

from fastapi import FastAPI

from pagewire_frontend.http.server import HttpServer
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
