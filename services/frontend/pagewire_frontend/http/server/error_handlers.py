"""Handlers that turn every error inside the application into the error envelope."""

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from pagewire_frontend.http.server.errors import (
    CODE_BY_STATUS,
    envelope,
    error_response,
    json_response,
)
from pagewire_frontend.http.server.methods import allowed_methods
from pagewire_shared.errors import InternalError, PagewireError


def install_handlers(app: FastAPI) -> None:
    """Give every error of the app the envelope."""
    app.add_exception_handler(PagewireError, _on_pagewire_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(Exception, _on_fault)


async def _on_pagewire_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, PagewireError), "registered for this class"
    return error_response(error)


async def _on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), "registered for this class"
    status = error.status_code
    headers = dict(error.headers or {})
    if status == 405:
        # The router names the methods of the first route only.
        headers["allow"] = ", ".join(allowed_methods(request.app.routes, request.scope))
        headers.pop("Allow", None)
    message = f"{request.method} {request.url.path}: {error.detail}"
    body = envelope(status, message, code=CODE_BY_STATUS.get(status, "http_error"))
    return json_response(body, status=status, headers=headers)


async def _on_fault(_: Request, error: Exception) -> Response:
    # The server logs the trace; the client learns that it is our fault and no more.
    return error_response(InternalError("the server failed on this request"))
