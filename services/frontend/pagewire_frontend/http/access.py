"""Who may call over HTTP: API keys, and CORS for browsers. Plain ASGI."""

from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pagewire_frontend.api_keys import ApiKeys, set_tenant
from pagewire_frontend.http.errors import envelope, error_response, json_response
from pagewire_frontend.http.request_id import REQUEST_ID
from pagewire_shared.errors import AuthenticationError

OPEN_PATHS = frozenset({"/health", "/ready", "/live", "/ping", "/version"})
"""What an orchestrator asks, which has no key."""
_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS")
_EXPOSED = (REQUEST_ID, "retry-after", "retry-after-ms")


class KeyMiddleware:
    """Refuses requests without a valid key with 401, before their body is read."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one exchange on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            try:
                set_tenant(self._keys.check(Headers(scope=scope).get("authorization")))
            except AuthenticationError as error:
                await error_response(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Cors(CORSMiddleware):
    """Starlette's, which answers preflights, with the error envelope for those it refuses."""

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
