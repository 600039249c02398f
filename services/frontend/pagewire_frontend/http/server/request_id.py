"""Puts a request id on every answer: the client's own, or one made here. Plain ASGI."""

import uuid
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagewire_frontend.request_label import LABEL, PEER, parse_label
from pagewire_frontend.traces.parent import PARENT, parent_in

REQUEST_ID = "x-request-id"
STREAM_ID = "x-pagewire-stream"
"""Of an answer whose stream is kept: the id of the stream."""
REPLAYED = "idempotent-replayed"
"""Of an answer that another request with the same idempotency key has made."""


def label_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the client's request id, else a new one."""
    for name, value in headers:
        if name.lower() == REQUEST_ID.encode() and (label := parse_label(value)):
            return label
    return uuid.uuid4().hex


class RequestIdMiddleware:
    """Puts the request id on every answer. Streams pass through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one exchange on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        label = label_of(scope["headers"])
        LABEL.set(label)
        PEER.set(scope["client"][0] if scope.get("client") else None)
        PARENT.set(parent_in(scope["headers"]))

        async def send_labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = label
            await send(message)

        await self._app(scope, receive, send_labelled)
