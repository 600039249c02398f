"""Server-sent events: a response that writes chunks as they come, until the client leaves."""

import uuid
import weakref
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Generic, TypeVar

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import ClientGoneError, error_body
from pagewire_shared.errors import PagewireError

TextLine = Callable[[str], bytes]
"""Makes the streamed chunk of the next text; empty when the text shows nothing."""

OnEvent = Callable[[bytes], bool]
"""Is offered a whole event; returns whether it was taken."""

# A text that occurs nowhere else in a chunk, whatever a model is called.
_MARK: Final = uuid.uuid4().hex


_READY_LINES: Final[weakref.WeakSet[TextLine]] = weakref.WeakSet()


def ready_line(chunk: Callable[[str], Any]) -> TextLine:
    """Return a function that puts text into a prepared line: building the whole chunk for each
    token takes ten times as long.
    """
    head, _, tail = event_bytes(chunk(_MARK)).partition(orjson.dumps(_MARK))

    def line(text: str) -> bytes:
        return head + orjson.dumps(text) + tail if text else b""

    _READY_LINES.add(line)
    return line


def is_ready_line(line: TextLine) -> bool:
    """Return whether a function is one of `ready_line`: others may remember what they were given,
    and must not be called again with the same text."""
    return line in _READY_LINES


DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
Value = TypeVar("Value")


class EventStream(Response, Generic[Value]):
    """Streams values as events, then `[DONE]`; an error after the first byte is one last event."""

    def __init__(
        self,
        request: Request,
        chunks: AsyncIterator[list[Value]],
        close: Callable[[], None],
        *,
        frame: Callable[[Value], bytes] | None = None,
        last: bytes = DONE,
    ) -> None:
        """Create the event stream.

        Args:
            chunks: Lists of values that are ready together.
            close: Called at the end, whatever happens.
            frame: Turns a value into bytes; JSON as `data` by default.
            last: Sent at the end.
        """
        super().__init__(media_type="text/event-stream", headers=HEADERS)
        # The base class adds the length of an empty body; the real length is not known.
        self.raw_headers = [item for item in self.raw_headers if item[0] != b"content-length"]
        self._request = request
        self._chunks = chunks
        self._close = close
        self._frame = frame if frame is not None else event_bytes
        self._last = last

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the response."""
        try:
            await while_connected(self._request, self._write(send))
        except (ClientGoneError, OSError):
            return
        finally:
            self._close()

    async def _write(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            async for values in self._chunks:
                body = b"".join(self._frame(value) for value in values)
                if body:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            last = self._last
        except PagewireError as error:
            last = event_bytes(error_body(error))
        await send({"type": "http.response.body", "body": last, "more_body": False})


def event_bytes(value: Any) -> bytes:
    """Return a value as one event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"
