"""Names in a response header the fields of a request that had no effect. Plain ASGI."""

import heapq
import re
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADER: Final = "pagewire-ignored"
MAX_CHARS: Final = 512
"""Longest header; a client can send any number of fields."""
_KEY: Final = "pagewire.ignored"
MAX_NAME_CHARS: Final = 64
_HIDDEN = re.compile(r"[^\w.\-]", re.ASCII)


def note_ignored(scope: Scope, names: Iterable[str]) -> None:
    """Add fields to the header of this exchange: a few, or what `first_names` returns."""
    known: list[str] | None = scope.get(_KEY)
    if known is not None:
        known += [shown_name(name) for name in names]


def first_names(names: Iterable[str]) -> list[str]:
    """Return as many names as a header may show, and one more; a body has any number of them."""
    return heapq.nsmallest(MAX_CHARS + 1, {shown_name(name) for name in names})


def shown_name(name: str) -> str:
    """Return a name as a header can hold it: "?" for other characters, "..." for a long end."""
    short = name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 3]}..."
    return _HIDDEN.sub("?", short) or "?"


class IgnoredFieldsMiddleware:
    """Adds the header where an endpoint has noted fields."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one exchange on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        names: list[str] = []
        scope[_KEY] = names

        async def send_named(message: Message) -> None:
            if names and message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = header_value(names)
            await send(message)

        await self._app(scope, receive, send_named)


def header_value(names: Iterable[str]) -> str:
    """Return each name once, separated by commas; "..." stands for those beyond MAX_CHARS."""
    value = ""
    for name in sorted(set(names)):
        longer = f"{value}, {name}" if value else name
        if len(longer) > MAX_CHARS - len(", ..."):
            return f"{value}, ..."
        value = longer
    return value
