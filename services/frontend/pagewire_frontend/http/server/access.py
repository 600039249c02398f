"""Checks access over HTTP: API keys with their rights and limits, and CORS for browsers. Plain
ASGI."""

from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagewire_frontend.access.admin_log import note_call, note_refusal
from pagewire_frontend.access.api_keys import ApiKeys, Caller, set_caller
from pagewire_frontend.access.scopes import OPERATING, is_open, scope_of_path
from pagewire_frontend.http.server.errors import envelope, error_response, json_response
from pagewire_frontend.http.server.ignored_fields import HEADER
from pagewire_frontend.http.server.request_id import REPLAYED, REQUEST_ID, STREAM_ID
from pagewire_shared.errors import ForbiddenError, PagewireError

_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
_LIMIT_HEADERS = tuple(
    f"x-ratelimit-{what}-{of}"
    for of in ("requests", "tokens")
    for what in ("limit", "remaining", "reset")
)
_EXPOSED = (
    REQUEST_ID,
    HEADER,
    STREAM_ID,
    REPLAYED,
    "retry-after",
    "retry-after-ms",
    *_LIMIT_HEADERS,
)


class KeyMiddleware:
    """Refuses requests before their body is read: without a valid key with 401, with a key that may
    not make them with 403, and beyond its limits with 429.

    Args:
        protects_metrics: GET /metrics needs a key with the scope for it.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys, *, protects_metrics: bool) -> None:
        self._app = app
        self._keys = keys
        self._protects_metrics = protects_metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on, or refuse it."""
        if scope["type"] != "http" or is_open(
            scope["path"], protects_metrics=self._protects_metrics
        ):
            await self._app(scope, receive, send)
            return
        caller = None
        try:
            caller = await self._keys.check(Headers(scope=scope).get("authorization"))
            set_caller(caller)
            if caller is not None:
                _check(caller, scope)
        except PagewireError as error:
            note_refusal(scope["path"], error)
            answer: ASGIApp = error_response(error)
        else:
            answer = self._app
        await answer(scope, receive, _with_limit_headers(caller, send))


def _check(caller: Caller, scope: Scope) -> None:
    """Raise the error that keeps `caller` from this request; only POST computes anything."""
    path = scope["path"]
    needed = scope_of_path(path)
    try:
        caller.require(needed)
    except ForbiddenError as error:
        if needed in OPERATING:
            note_call(path, outcome=error.code)
        raise
    if scope["method"] == "POST" and needed not in OPERATING:
        caller.usage.begin_request()


def _with_limit_headers(caller: Caller | None, send: Send) -> Send:
    """Return a `send` that adds headers with the rest of the key's limits, as OpenAI's API does."""
    if caller is None or not caller.usage.remaining():
        return send

    async def send_with_limits(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for one in caller.usage.remaining():
                headers[f"x-ratelimit-limit-{one.name}"] = str(one.limit)
                headers[f"x-ratelimit-remaining-{one.name}"] = str(one.remaining)
                headers[f"x-ratelimit-reset-{one.name}"] = f"{one.reset_seconds:.3f}s"
        await send(message)

    return send_with_limits


class Cors(CORSMiddleware):
    """Starlette's CORS middleware, with the error envelope for the preflights that it refuses."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        super().__init__(
            app,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=["*"],
            expose_headers=_EXPOSED,
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer an OPTIONS request of a browser."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        origin = request_headers.get("origin", "")[:100]
        body = envelope(400, f"CORS: {origin!r} may not ask for this", code="cors_refused")
        refused = json_response(body, status=400)
        for name, value in response.headers.items():
            if name not in ("content-length", "content-type"):
                refused.headers[name] = value
        return refused
