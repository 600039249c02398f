"""The link that passes bytes between two sockets, and each thing that it does to them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from chaos.link_process import Link

SHORT_SECONDS = 0.2


@pytest.fixture
async def link(tmp_path: Path) -> AsyncIterator[tuple[Link, Callable]]:
    """A link to a server that sends back what it gets, and what connects to it."""
    servers = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1000):
                writer.write(data)
        writer.close()

    servers.append(await asyncio.start_unix_server(echo, tmp_path / "to"))
    one = Link(str(tmp_path / "link"), str(tmp_path / "to"))
    servers.append(await one.start())
    writers = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(tmp_path / "link")
        writers.append(writer)
        return reader, writer

    yield one, connect
    for writer in writers:
        writer.close()
    for server in servers:
        server.close()
    # The other ends notice, and close theirs.
    await asyncio.sleep(0.05)


async def answer(connection, data: bytes = b"hello") -> bytes:
    """Return what comes back within a short while; None where nothing does."""
    reader, writer = connection
    writer.write(data)
    with contextlib.suppress(TimeoutError, ConnectionError, EOFError):
        return await asyncio.wait_for(reader.readexactly(len(data)), SHORT_SECONDS)
    return b""


@pytest.mark.parametrize("mode", ["hold", "hold_there", "hold_back"])
async def test_what_is_held_comes_later(link, mode: str) -> None:
    one, connect = link
    connection = await connect()
    assert await answer(connection) == b"hello"
    one.turn(mode, 0.0)
    assert await answer(connection) == b""
    one.turn("pass", 0.0)
    assert await connection[0].readexactly(5) == b"hello"
    assert await answer(connection) == b"hello"


async def test_a_refused_connection_is_closed_and_no_other_comes(link) -> None:
    one, connect = link
    connection = await connect()
    assert await answer(connection) == b"hello"
    one.turn("refuse", 0.0)
    for each in (connection, await connect()):
        with contextlib.suppress(ConnectionError):
            assert await each[0].read() == b""
    one.turn("pass", 0.0)
    assert await answer(await connect()) == b"hello"


async def test_a_connection_is_cut_after_some_bytes(link) -> None:
    one, connect = link
    connection = await connect()
    one.turn("cut", 12.0)
    assert await answer(connection) == b"hello"
    assert await answer(connection, bytes(10)) == b""
    assert await answer(await connect()) == b"hello"


async def test_one_bit_is_flipped(link) -> None:
    one, connect = link
    connection = await connect()
    one.turn("flip", 3.0)
    found = [await answer(connection) for _ in range(2)]
    sent = int.from_bytes(b"hello" * 2, "big")
    assert (int.from_bytes(b"".join(found), "big") ^ sent).bit_count() == 1


async def test_delays_and_losses_lose_nothing(link) -> None:
    one, connect = link
    for mode, value in (("delay", 0.02), ("loss", 0.0)):
        one.turn(mode, value)
        reader, writer = await connect()
        for number in range(20):
            writer.write(bytes([number]) * 100)
        found = await reader.readexactly(2000)
        assert found == b"".join(bytes([number]) * 100 for number in range(20))
