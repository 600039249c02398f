"""A server that speaks LMCache's protocol, and fails as a test says; written from the protocol,
not with the connector's own code."""

import asyncio
import contextlib
import struct

_COMMAND = struct.Struct("9i150s")


class ScriptedLmcache:
    """Entries in a dictionary.

    Attributes:
        entries: Values by key.
        hangs: Whether no command is answered.
        cuts_after: Bytes of a value after which the connection ends; None for never.
        says: Code of every answer instead of the right one.
        num_connections: How many there were.
    """

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.hangs = False
        self.cuts_after: int | None = None
        self.says: int | None = None
        self.num_connections = 0
        self.commands: list[int] = []
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "ScriptedLmcache":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    await self._answer(reader, writer)
        finally:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = _COMMAND.unpack(await reader.readexactly(_COMMAND.size))
        command, length, key = head[0], head[1], head[9].decode().strip()
        self.commands.append(command)
        if command == 1:
            self.entries[key] = await reader.readexactly(length)
            return
        if self.hangs:
            await asyncio.Event().wait()
        value = self.entries.get(key)
        code = self.says or (400 if value is None else 200)
        size = len(value) if command == 2 and value is not None else 0
        writer.write(struct.pack("9i", code, size, 4, 6, size, 0, 0, 0, 0))
        if command == 2 and value is not None:
            writer.write(value[: self.cuts_after])
            if self.cuts_after is not None:
                await writer.drain()
                raise OSError("cut")
        await writer.drain()
