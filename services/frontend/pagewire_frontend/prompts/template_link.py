"""The frontend's link to a process that renders templates: starts, asks and kills it."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from typing import Any, Final, cast

import orjson

from pagewire_frontend.process_limits import reap_later
from pagewire_frontend.prompts.template_process import LENGTH

MODULE: Final = "pagewire_frontend.prompts.template_process"


class RendererEndedError(Exception):
    """The process is gone."""


class TemplateLink(asyncio.Protocol):
    """One renderer process; answers one question at a time. Made by `start_renderer`."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.models: set[str] = set()
        """Models whose templates the process has loaded."""
        self._process = process
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[dict[str, Any]] | None = None
        self.is_running = True

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    async def ask(self, question: bytes) -> dict[str, Any]:
        """Return the answer to a question, which is JSON. Raises RendererEndedError."""
        if not self.is_running or self._transport is None:
            raise RendererEndedError
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.writelines((LENGTH.pack(len(question)), question))
        try:
            return await self._answer
        finally:
            self._answer = None

    def kill(self) -> None:
        """End the process."""
        self.is_running = False
        if self._transport is not None:
            self._transport.abort()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        reap_later(self._process.wait)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transport has this interface without being a subclass.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take a piece of an answer."""
        self._received += data
        if len(self._received) < LENGTH.size:
            return
        (length,) = LENGTH.unpack_from(self._received)
        if len(self._received) < LENGTH.size + length:
            return
        answer = orjson.loads(memoryview(self._received)[LENGTH.size : LENGTH.size + length])
        self._received = bytearray()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the open question: the process ended, or was killed."""
        self.is_running = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RendererEndedError())


async def start_renderer() -> TemplateLink:
    """Return the link to a new process. Raises OSError where no process can be started."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            process = await loop.run_in_executor(None, _start, theirs)
        _, link = await loop.create_unix_connection(lambda: TemplateLink(process), sock=ours)
    except BaseException:
        ours.close()
        raise
    return link


def _start(theirs: socket.socket) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-P", "-m", MODULE],
        stdin=theirs.fileno(),
        stdout=subprocess.DEVNULL,
        env={**os.environ, "MALLOC_ARENA_MAX": "1"},
    )
