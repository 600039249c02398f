"""Passes bytes between Unix sockets, and does to them what it is told. Run as a program.

    link_process.py

Each line of its input is JSON: {"add": [name, listen, to]}, or {"set": name, "mode": mode,
"value": number}. Each is answered by a line. Modes of a link, until the next one:

- pass: bytes pass.
- hold, hold_there, hold_back: nothing passes, in one direction or both; connections stay.
- delay: each read waits `value` seconds.
- loss: one read in ten waits 0.2 seconds, as a lost packet is sent again.
- refuse: connections are closed, and new ones at once.
- cut: connections are closed after `value` more bytes.
- flip: a bit of each connection is flipped after `value` more bytes.
"""

import asyncio
import contextlib
import json
import random
import sys
from typing import Any

READ_BYTES = 64 * 1024
LOST_SECONDS = 0.2


class Link:
    """One socket, and the connections that come in by it."""

    def __init__(self, listen: str, to: str) -> None:
        self._listen = listen
        self._to = to
        self._mode, self._value = "pass", 0.0
        self._left: int | None = None
        self._may_pass = {True: asyncio.Event(), False: asyncio.Event()}
        self._writers: set[asyncio.StreamWriter] = set()
        self._dice = random.Random(listen)
        self.turn("pass", 0.0)

    async def start(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._connect, self._listen)

    def turn(self, mode: str, value: float) -> None:
        """Do this from now on, to connections that are there and to new ones."""
        self._mode, self._value = mode, value
        self._left = int(value) if mode in ("cut", "flip") else None
        for is_there, event in self._may_pass.items():
            held = "hold_there" if is_there else "hold_back"
            event.clear() if mode in ("hold", held) else event.set()
        if mode == "refuse":
            self._close_all()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._mode == "refuse":
            writer.close()
            return
        try:
            there, back = await asyncio.open_unix_connection(self._to)
        except OSError:
            writer.close()
            return
        both = {writer, back}
        self._writers |= both
        await asyncio.gather(
            self._pump(reader, back, both, is_there=True),
            self._pump(there, writer, both, is_there=False),
        )
        self._writers -= both

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        both: set[asyncio.StreamWriter],
        *,
        is_there: bool,
    ) -> None:
        try:
            while data := await reader.read(READ_BYTES):
                if self._mode == "delay":
                    await asyncio.sleep(self._value)
                elif self._mode == "loss" and self._dice.random() < 0.1:
                    await asyncio.sleep(LOST_SECONDS)
                await self._may_pass[is_there].wait()
                writer.write(self._damaged(data))
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            for one in both:
                one.close()

    def _damaged(self, data: bytes) -> bytes:
        if self._left is None:
            return data
        self._left -= len(data)
        if self._left > 0:
            return data
        self._left, at = None, max(0, len(data) + self._left - 1)
        if self._mode == "flip":
            return data[:at] + bytes([data[at] ^ 1 << self._dice.randrange(8)]) + data[at + 1 :]
        self._close_all()
        raise ConnectionResetError

    def _close_all(self) -> None:
        for writer in self._writers:
            with contextlib.suppress(Exception):
                writer.transport.abort()


async def main() -> None:
    """Take orders until the input ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    links: dict[str, Link] = {}
    while line := await reader.readline():
        order: dict[str, Any] = json.loads(line)
        if "add" in order:
            name, listen, to = order["add"]
            links[name] = Link(listen, to)
            await links[name].start()
        else:
            links[order["set"]].turn(order["mode"], order["value"])
        print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
