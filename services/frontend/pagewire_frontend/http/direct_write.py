"""Writing to a connection without a task switch per piece.

A task that wakes for every token costs as much as the write itself. uvicorn's `send` waits for
nothing unless the connection's buffer is full, so while it is not, a piece can be written from
wherever it was made.
"""

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

_EXTENSION = "pagewire.direct_write"


class DirectWriter:
    """One response's body."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def is_full(self) -> bool:
        """Whether the connection's buffer is full: the client reads more slowly than we write."""
        return bool(self._cycle.flow.write_paused)

    async def wait_drained(self) -> None:
        """Wait until the client has read enough for more to be written, or is gone."""
        await self._cycle.flow.drain()

    def write(self, body: bytes) -> None:
        """Write a piece of the body; the buffer must not be full."""
        step = self._cycle.send({"type": "http.response.body", "body": body, "more_body": True})
        try:
            step.send(None)
        except StopIteration:
            return
        raise AssertionError("a write had to wait though the buffer was not full")


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
    """Return the writer of an exchange. The gateway is served by `http.server` and nothing else."""
    writer = scope["extensions"][_EXTENSION]
    assert isinstance(writer, DirectWriter)
    return writer
