"""A stream of server-sent events that is written where its tokens arrive, without a task switch per
token. Output for a slow client waits merged in its session."""

import asyncio
import enum
from collections.abc import Callable
from typing import Protocol

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.direct_write import DirectWriter, direct_writer
from pagewire_frontend.http.server.errors import ClientGoneError, error_body
from pagewire_frontend.http.streaming.event_stream import HEADERS, OnEvent, TextLine, event_bytes
from pagewire_frontend.http.streaming.flush_rounds import FlushRounds
from pagewire_frontend.session.events import OnText
from pagewire_shared.errors import PagewireError


class ReadySource(Protocol):
    """A source that says when it has events.

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


class StreamSource(ReadySource, Protocol):
    """The source of the events of a stream."""

    def listen(
        self, on_ready: Callable[[], None], on_text: OnText, on_event: OnEvent | None = None
    ) -> None:
        """As a ReadySource; or whole events may be offered to `on_event`."""
        ...

    def take(self) -> bytes:
        """Return the events that are ready, as they are written.

        Raises:
            PagewireError: The reason why nothing more comes.
        """
        ...


class StreamState(enum.Enum):
    """State of a stream towards its connection."""

    NEW = "new"
    """The response has not begun."""
    OPEN = "open"
    """Output is written as it comes."""
    FULL = "full"
    """The client has to read first; output waits in the source."""
    CLOSED = "closed"
    """The response is over, or the client left."""


LEGAL_MOVES: dict[StreamState, frozenset[StreamState]] = {
    StreamState.NEW: frozenset({StreamState.OPEN}),
    StreamState.OPEN: frozenset({StreamState.FULL, StreamState.CLOSED}),
    StreamState.FULL: frozenset({StreamState.OPEN, StreamState.CLOSED}),
    StreamState.CLOSED: frozenset(),
}

# Read for every token: looking a member up in its class costs as much as a call.
_OPEN = StreamState.OPEN


class LiveStream(Response):
    """Streams the events of a source as soon as they are ready."""

    def __init__(
        self,
        request: Request,
        source: StreamSource,
        close: Callable[[], None],
        rounds: FlushRounds,
    ) -> None:
        """Create the live stream.

        Args:
            close: Called at the end, whatever happens.
            rounds: Writes all streams of the process together.
        """
        super().__init__(media_type="text/event-stream", headers=HEADERS)
        # The base class adds the length of an empty body; the real length is not known.
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        self._request = request
        self._source = source
        self._close = close
        self._writer: DirectWriter | None = None
        self.state = StreamState.NEW
        # Set when the task below has something to do: the end, a failure, or a full connection.
        self._turn = asyncio.Event()
        self._failure: Exception | None = None
        self._rounds = rounds
        # Whether the next round fills this stream.
        self._is_waiting = False
        # Events taken in this turn of the event loop, and written at its end.
        self._ready = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the response."""
        self._writer = direct_writer(scope)
        self.advance(StreamState.OPEN)
        try:
            await while_connected(self._request, self._write(send))
        except (ClientGoneError, OSError):
            return
        finally:
            self.advance(StreamState.CLOSED)
            self._close()

    def advance(self, state: StreamState) -> None:
        """Move to `state`; a move that LEGAL_MOVES lacks is a fault of this class."""
        assert state in LEGAL_MOVES[self.state], f"{self.state.value} -> {state.value}"
        self.state = state

    def fill(self) -> None:
        """Take the waiting events of the source, unless the client has to read first."""
        self._is_waiting = False
        if self.state is not _OPEN:
            return
        try:
            if self._failure is None:
                self._ready += self._source.take()
        except Exception as error:  # noqa: BLE001 - raised in the task of this stream
            self._failure = error
        if self._failure is not None or self._source.is_over:
            self._turn.set()

    def write(self) -> None:
        """Write the events that were taken."""
        body, self._ready = self._ready, b""
        if self.state is not _OPEN or not body:
            return
        assert self._writer is not None, "set before the stream opens"
        if not self._writer.write(body):
            self.advance(StreamState.FULL)
            self._turn.set()

    def _offer(self, text: str) -> bool:
        """Take text directly, past the buffer of the source: the path of nearly every token."""
        line = self._source.text_line
        if line is None or self.state is not _OPEN:
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

    def _push(self, event: bytes) -> bool:
        """Take a whole event directly."""
        if self.state is not _OPEN:
            return False
        self._ready += event
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
        self._source.listen(self._notice, self._offer, self._push)
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
            assert self._writer is not None, "set before the stream opens"
            # The connection cuts a client that takes nothing for too long.
            await self._writer.wait_drained()
            self.advance(StreamState.OPEN)
            self._notice()
        await send({"type": "http.response.body", "body": last, "more_body": False})
