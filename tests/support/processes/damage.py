"""Damage done to bytes, and a link between two Unix sockets that does it to what passes."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

KINDS = ("flip", "cut", "swap")
_RUN_BYTES = 24
_READ_BYTES = 64 * 1024


def damaged(kind: str, data: bytes, other: bytes, dice: random.Random) -> bytes:
    """Return `data` with a bit flipped, cut short, or `other` in its place."""
    if kind == "swap":
        return other
    at = dice.randrange(len(data))
    if kind == "cut":
        return data[:at]
    return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]


@dataclass(slots=True)
class Fault:
    """What a link does once to the bytes of one direction.

    Attributes:
        kind: One of KINDS; a cut takes some bytes out, a swap exchanges two runs of bytes.
        is_answer: Whether to what the store sends; else to what it is sent.
        offset: Bytes that pass before.
        is_done: Whether it has happened.
    """

    kind: str
    is_answer: bool
    offset: int
    is_done: bool = False

    def apply(self, data: bytes, dice: random.Random) -> bytes:
        """Take the next bytes and return what passes instead."""
        at = self.offset
        self.offset -= len(data)
        if self.is_done or at >= len(data):
            return data
        result = self._changed(data, at, dice)
        self.is_done = result != data
        return result

    def _changed(self, data: bytes, at: int, dice: random.Random) -> bytes:
        if self.kind == "flip":
            return damaged("flip", data[at : at + 1], b"", dice).join((data[:at], data[at + 1 :]))
        end = at + _RUN_BYTES
        if self.kind == "cut":
            return data[:at] + data[end:]
        return data[:at] + data[end : end + _RUN_BYTES] + data[at:end] + data[end + _RUN_BYTES :]


@contextlib.asynccontextmanager
async def damaging_link(
    listen: str, to: str, fault: Fault, dice: random.Random
) -> AsyncIterator[None]:
    """Pass bytes between two Unix sockets, but for what `fault` does to them."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool
    ) -> None:
        try:
            while data := await reader.read(_READ_BYTES):
                if is_answer is fault.is_answer:
                    data = fault.apply(data, dice)
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # either side may end as it likes
        finally:
            writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_unix_connection(to)
        except OSError:
            writer.close()
            return
        writers.extend((back, writer))
        both = (pump(reader, back, False), pump(there, writer, True))
        tasks.update(map(asyncio.create_task, both))

    server = await asyncio.start_unix_server(connect, listen)
    try:
        yield
    finally:
        server.close()
        # A peer that does not understand what comes may keep its connection.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()
