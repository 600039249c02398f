"""Answers HEAD and OPTIONS for all endpoints. Plain ASGI."""

from collections.abc import Sequence

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")


class MethodsMiddleware:
    """Serves HEAD as GET, whose body the server leaves out, and OPTIONS with the methods of the
    path."""

    def __init__(self, app: ASGIApp, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one exchange on."""
        method = scope.get("method")
        if method == "HEAD" and "HEAD" not in _methods(self._routes, scope):
            scope = {**scope, "method": "GET"}
        elif method == "OPTIONS":
            methods = allowed_methods(self._routes, scope)
            if methods:
                headers = {"allow": ", ".join(methods)}
                await Response(status_code=204, headers=headers)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def allowed_methods(routes: Sequence[BaseRoute], scope: Scope) -> list[str]:
    """Return the methods of a path in order; none for a path that does not exist."""
    methods = _methods(routes, scope)
    if not methods:
        return []
    if "GET" in methods:
        methods.add("HEAD")
    return sorted({*methods, "OPTIONS"})


def _methods(routes: Sequence[BaseRoute], scope: Scope) -> set[str]:
    # Tried one by one: the methods attribute of a route differs between versions of FastAPI.
    return {
        method
        for method in _METHODS
        if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
    }
