"""The gateway's application: routes, the error envelope, and the request id on every answer."""

import re
import uuid
from collections.abc import Awaitable, Callable

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagewire_frontend.engine import Engine
from pagewire_frontend.http import (
    embeddings,
    generation,
    information,
    metrics,
    responses,
    responses_kept,
)
from pagewire_frontend.http.errors import install_handlers
from pagewire_frontend.http.streams import Streams
from pagewire_frontend.responses.directory import ResponseDirectory
from pagewire_frontend.responses.local import LocalResponses

REQUEST_ID = "x-request-id"
# What is echoed into a header and a log line must not be able to forge either.
_LABEL = re.compile(r"[\x21-\x7e]{1,128}")


def make_app(
    engine: Engine,
    kept: LocalResponses,
    *,
    max_body_bytes: int,
    stall_seconds: float,
    exposition: Callable[[], Awaitable[str]],
    directory: ResponseDirectory,
) -> FastAPI:
    """Return the application.

    Args:
        engine: Generates.
        kept: The responses of this process.
        max_body_bytes: Largest body.
        stall_seconds: After so long a client that takes nothing is cut.
        exposition: Returns the metrics that are shown.
        directory: Where responses are found by their names.
    """
    app = FastAPI(title="Pagewire", redoc_url=None, redirect_slashes=False)
    install_handlers(app)
    streams = Streams(stall_seconds=stall_seconds)
    app.include_router(generation.make_router(engine, streams, max_body_bytes=max_body_bytes))
    app.include_router(embeddings.make_router(engine, max_body_bytes=max_body_bytes))
    app.include_router(
        responses.make_router(engine, kept, max_body_bytes=max_body_bytes, directory=directory)
    )
    app.include_router(responses_kept.make_router(directory))
    app.include_router(information.make_router(engine))
    app.include_router(metrics.make_router(exposition))
    app.add_middleware(RequestIdMiddleware)
    return app


class RequestIdMiddleware:
    """Echoes the client's request id, or mints one. Plain ASGI: streams pass through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one exchange on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        label = given if _LABEL.fullmatch(given) else uuid.uuid4().hex

        async def send_labelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = label
            await send(message)

        await self._app(scope, receive, send_labelled)
