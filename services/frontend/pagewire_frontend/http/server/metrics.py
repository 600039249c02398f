"""Serves GET /metrics, and counts every HTTP request. The package `metrics` has the counters."""

from collections.abc import Awaitable, Callable

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagewire_frontend.metrics.formats import OPEN, TEXT
from pagewire_frontend.metrics.requests import RequestTimer, counted
from pagewire_shared.process.metrics_format import is_open_asked

OTHER = "other"
"""Endpoint label of requests without a route; a client must not be able to make up labels."""

_GONE = "499"


def make_router(exposition: Callable[[bool], Awaitable[str]]) -> APIRouter:
    """Return the endpoint; `exposition` returns the metrics of all frontends as text, in
    OpenMetrics if it is given True."""
    router = APIRouter()

    @router.get("/metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        """Metrics of all frontend processes together, in Prometheus' text format, or in OpenMetrics
        for those that accept it."""
        is_open = is_open_asked(request.headers.get("accept", ""))
        return Response(
            await exposition(is_open),
            media_type=OPEN if is_open else TEXT,
            headers={"vary": "accept"},
        )

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
