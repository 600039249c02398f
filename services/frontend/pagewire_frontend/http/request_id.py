"""The label of an exchange: the client's own, or one made here. Plain ASGI."""

import re
import uuid
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUEST_ID = "x-request-id"
# What is echoed into a header and a log line must not be able to forge either.
_LABEL = re.compile(rb"[\x21-\x7e]{1,128}")


def label_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """Return the request id that a client gives, else a new one."""
    for name, value in headers:
        if name.lower() == REQUEST_ID.encode() and _LABEL.fullmatch(value):
            return value.decode()
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

        async def send_labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = label
            await send(message)

        await self._app(scope, receive, send_labelled)
