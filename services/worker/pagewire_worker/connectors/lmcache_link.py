"""One connection to a server of LMCache. Its user closes it after any error: commands have no
numbers, so an answer that is still to come would be taken for that of the next command."""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

from pagewire_shared.errors import UnavailableError, WireError
from pagewire_worker.connectors.lmcache_wire import (
    ANSWER_BYTES,
    EntryAnswer,
    EntryCommand,
    decode,
    encode,
)

CONNECT_SECONDS: Final = 2.0
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class LmcacheLink:
    """Sends commands one after the other. Made by `connect`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, host: str, port: int) -> "LmcacheLink":
        """Return a connection. Raises UnavailableError."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return cls(*await asyncio.open_connection(host, port))
        except OSError as error:  # TimeoutError is one
            raise UnavailableError(f"no LMCache server at {host}:{port}: {error}") from error

    async def exist(self, keys: Sequence[str]) -> list[bool]:
        """Return whether the server has each key. Raises UnavailableError or WireError."""
        self._writer.write(b"".join(encode(EntryCommand.EXIST, key) for key in keys))
        answers = [await self._answer() for _ in keys]
        if any(answer.num_bytes for answer in answers):
            raise WireError("the LMCache server sends bytes with an answer without any")
        return [answer.is_there for answer in answers]

    def begin_get(self, keys: Sequence[str]) -> None:
        """Ask for the bytes under keys; `get` returns them, one by one and in this order."""
        self._writer.write(b"".join(encode(EntryCommand.GET, key) for key in keys))

    async def get(self, num_bytes: int) -> bytes | None:
        """Return the next bytes asked for, or None for a missing entry. Raises as `exist`."""
        answer = await self._answer()
        if not answer.is_there:
            return None
        if answer.num_bytes != num_bytes:
            raise WireError(f"the LMCache server sends {answer.num_bytes} bytes, not {num_bytes}")
        self._acknowledge_at_once()
        return await self._read(num_bytes)

    async def put(self, key: str, data: memoryview) -> None:
        """Send bytes; whether the server has them is known after `exist`."""
        self._writer.write(encode(EntryCommand.PUT, key, len(data)))
        self._writer.write(data)
        try:
            await self._writer.drain()
        except OSError as error:
            raise UnavailableError(f"the LMCache server is gone: {error}") from error

    @property
    def is_open(self) -> bool:
        """Whether it was not closed on either side."""
        return not (self._writer.is_closing() or self._reader.at_eof())

    def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    def _acknowledge_at_once(self) -> None:
        """Let the kernel send the next acknowledgement without its usual delay of 40 ms.

        The server writes an answer and its bytes apart, and its kernel (Nagle's algorithm) keeps
        the second part back until the first one is acknowledged.
        """
        if _QUICK_ACK is not None:
            self._writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    async def _answer(self) -> EntryAnswer:
        self._acknowledge_at_once()
        return decode(await self._read(ANSWER_BYTES))

    async def _read(self, num_bytes: int) -> bytes:
        try:
            return await self._reader.readexactly(num_bytes)
        except (OSError, asyncio.IncompleteReadError) as error:
            raise UnavailableError(f"the LMCache server is gone: {error}") from error
