"""Serves GET /metrics, and counts every HTTP request. The package `metrics` has the counters."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagewire_frontend.metrics.requests import RequestTimer, counted

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OTHER = "other"
"""Endpoint label of requests without a route; a client must not be able to make up labels."""

_GONE = "499"


def make_router(exposition: Callable[[], Awaitable[str]]) -> APIRouter:
    """Return the endpoint; `exposition` returns the metrics of all frontends as text."""
    router = APIRouter()

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Metrics of all frontend processes together, in Prometheus' text format."""
        return Response(await exposition(), media_type=MEDIA_TYPE)

    return router


class MetricsMiddleware:
    """Counts exchanges by route and status. Plain ASGI: streams pass through untouched."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one exchange on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # The status of a request whose client left before it got one.
        exchange = RequestTimer(OTHER, _GONE)

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = str(message["status"])
            await send(message)

        with counted("http", exchange):
            try:
                await self._app(scope, receive, send_noted)
            finally:
                exchange.endpoint = getattr(scope.get("route"), "path", OTHER)
