"""Writes to a connection without a task switch per piece.

Waking a task for every token costs as much as the write itself, and so does a message for uvicorn's
`send`. `send` waits only while the connection's buffer is full. Until then a piece can be written
from any callback, as a chunk of a body of unknown length (RFC 9112, section 7.1).
"""

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_EXTENSION = "pagewire.direct_write"


class DirectWriter:
    """Writes one response's body."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    async def wait_drained(self) -> None:
        """Wait until the client has read enough for more to be written, or is gone."""
        await self._cycle.flow.drain()

    def write(self, body: bytes) -> bool:
        """Write a piece of the body, as uvicorn's `send` does; return whether there is room for
        more."""
        cycle = self._cycle
        if cycle.disconnected:
            return True
        assert cycle.chunked_encoding, "the response has begun, and its length is not known"
        assert not cycle.response_complete, "a body ends once"
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        return not cycle.flow.write_paused


class DirectWrites:
    """The outermost ASGI layer: gives the application a DirectWriter where uvicorn serves it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one exchange on."""
        cycle = getattr(send, "__self__", None)
        if isinstance(cycle, RequestResponseCycle):
            scope.setdefault("extensions", {})[_EXTENSION] = DirectWriter(cycle)
        await self._app(scope, receive, send)


def direct_writer(scope: Scope) -> DirectWriter:
    """Return the writer of an HTTP request. Only `http.server` serves the gateway, which provides
    it."""
    writer = scope["extensions"][_EXTENSION]
    assert isinstance(writer, DirectWriter)
    return writer
