"""A stream of server-sent events that is written where its tokens arrive, without a task switch per
token. What a slow client leaves waits merged in its session.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.direct_write import DirectWriter, direct_writer
from pagewire_frontend.http.server.errors import ClientGoneError, error_body
from pagewire_frontend.http.streaming.event_stream import HEADERS, TextLine, event_bytes
from pagewire_frontend.http.streaming.flush_rounds import FlushRounds
from pagewire_frontend.session.events import OnText
from pagewire_shared.errors import PagewireError


class StreamSource(Protocol):
    """Where the events of a stream come from.

    Attributes:
        text_line: Makes an event of offered text; None while it has to be taken with the rest.
    """

    text_line: TextLine | None

    @property
    def is_over(self) -> bool:
        """Whether the last event was taken."""
        ...

    def listen(self, on_ready: Callable[[], None], on_text: OnText) -> None:
        """Call `on_ready` whenever there is something to take, at once if there is already; text
        may be offered to `on_text` while there is not."""
        ...

    def take(self) -> bytes:
        """Return the events that are ready, as they are written.

        Raises:
            PagewireError: Nothing more comes, and this is why.
        """
        ...


class LiveStream(Response):
    """Streams what a source has, as soon as it has it."""

    def __init__(
        self,
        request: Request,
        source: StreamSource,
        close: Callable[[], None],
        rounds: FlushRounds,
    ) -> None:
        """Args: `close`, called whatever happens."""
        super().__init__(media_type="text/event-stream", headers=HEADERS)
        # Its length is not known, whatever the base class says of the empty body.
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        self._request = request
        self._source = source
        self._close = close
        self._writer: DirectWriter | None = None
        # Set when the task below has something to do: the end, a failure, or a full connection.
        self._turn = asyncio.Event()
        self._failure: Exception | None = None
        self._is_full = False
        self._rounds = rounds
        # Whether the next round fills this stream.
        self._is_waiting = False
        # Made ready in this turn of the event loop, and written at its end.
        self._ready = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the response."""
        self._writer = direct_writer(scope)
        try:
            await while_connected(self._request, self._write(send))
        except (ClientGoneError, OSError):
            return
        finally:
            self._writer = None
            self._close()

    def fill(self) -> None:
        """Take what waits in the source, unless the client has to read first."""
        self._is_waiting = False
        if self._writer is None or self._is_full:
            return
        try:
            if self._failure is None:
                self._ready += self._source.take()
        except Exception as error:  # noqa: BLE001 - raised in the task of this stream
            self._failure = error
        if self._failure is not None or self._source.is_over:
            self._turn.set()

    def write(self) -> None:
        """Write what was made ready."""
        body, self._ready = self._ready, b""
        if self._writer is None or not body:
            return
        if not self._writer.write(body):
            self._is_full = True
            self._turn.set()

    def _offer(self, text: str) -> bool:
        """Take text past the source's store: the way of nearly every token."""
        line = self._source.text_line
        if line is None or self._writer is None or self._is_full:
            return False
        try:
            self._ready += line(text)
        except Exception as error:  # noqa: BLE001 - raised in the task of this stream
            self._failure = error
            self._notice()
            return True
        writing = self._rounds.writing
        if not writing:
            self._rounds.begin()
        writing.append(self)
        return True

    def _notice(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._rounds.fill(self)

    async def _write(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        self._source.listen(self._notice, self._offer)
        last = b""
        while True:
            await self._turn.wait()
            self._turn.clear()
            if isinstance(self._failure, PagewireError):
                last = event_bytes(error_body(self._failure))
                break
            if self._failure is not None:
                raise self._failure
            if self._source.is_over:
                break
            assert self._writer is not None, "open while this task runs"
            # One that takes nothing for too long is cut by its connection.
            await self._writer.wait_drained()
            self._is_full = False
            self._notice()
        await send({"type": "http.response.body", "body": last, "more_body": False})
