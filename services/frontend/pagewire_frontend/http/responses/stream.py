"""Events of a response on their way to a client."""

from collections.abc import AsyncIterator, Callable

from fastapi import Request

from pagewire_frontend.http.streaming.event_stream import EventStream


def response_stream(
    request: Request,
    ready: AsyncIterator[list[bytes]],
    close: Callable[[], None] = lambda: None,
) -> EventStream[bytes]:
    """Return a stream of events that are framed already; nothing comes after the last of them."""
    return EventStream(request, ready, close, frame=bytes, last=b"")
