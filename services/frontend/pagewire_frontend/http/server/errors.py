"""The OpenAI error envelope, for every error of the gateway. The one mapping from errors to HTTP
statuses; docs/api.md has the same as a table."""

import logging
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from pagewire_frontend.http.server.methods import allowed_methods
from pagewire_shared.errors import InvalidRequestError, PagewireError, WireError
from pagewire_shared.exhaustion import fault_of, is_exhausted

_logger = logging.getLogger(__name__)

_STATUS_BY_NAME = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNAVAILABLE": 503,
    "FAILED_PRECONDITION": 503,
    "DEADLINE_EXCEEDED": 504,
}
_TYPE_BY_STATUS = {429: "rate_limit_error", 503: "service_unavailable_error", 504: "timeout_error"}
CODE_BY_STATUS = {
    400: "invalid_http",
    404: "not_found",
    405: "method_not_allowed",
    408: "request_timeout",
    414: "target_too_long",
    431: "headers_too_large",
    500: "internal_error",
    503: "too_many_connections",
}
"""Codes of requests that are refused before they reach an endpoint."""


@dataclass
class BodyTooLargeError(InvalidRequestError):
    """The body of a request is larger than the gateway takes."""

    code: str = "body_too_large"
    __str__ = PagewireError.__str__


@dataclass
class MediaTypeError(InvalidRequestError):
    """The headers of a request announce a body that is not JSON."""

    code: str = "unsupported_media_type"
    __str__ = PagewireError.__str__


@dataclass
class KeyReusedError(InvalidRequestError):
    """An idempotency key comes with another request than its first."""

    code: str = "idempotency_key_reused"
    __str__ = PagewireError.__str__


@dataclass
class ClientGoneError(PagewireError):
    """The client closed its connection; the answer has no reader."""

    code: str = "cancelled"
    status_name = "CANCELLED"
    __str__ = PagewireError.__str__


def status_of(error: PagewireError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, BodyTooLargeError):
        return 413
    if isinstance(error, MediaTypeError):
        return 415
    if isinstance(error, KeyReusedError):
        return 422
    if isinstance(error, WireError):
        # A peer of ours is at fault, not the client.
        return 500
    return _STATUS_BY_NAME.get(error.status_name, 500)


def envelope(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """Return the error body; all four keys are always there."""
    default = "invalid_request_error" if status < 500 else "server_error"
    kind = _TYPE_BY_STATUS.get(status, default)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_body(error: PagewireError) -> dict[str, Any]:
    """Return the envelope of an error."""
    return envelope(status_of(error), error.message, param=error.field, code=error.code)


def error_response(error: PagewireError) -> Response:
    """Return the response of an error."""
    headers = {}
    status = status_of(error)
    if error.retry_after_ms is not None:
        headers["retry-after"] = str(max(1, -(-error.retry_after_ms // 1000)))
        headers["retry-after-ms"] = str(error.retry_after_ms)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return json_response(error_body(error), status=status, headers=headers)


def json_response(
    body: Any, *, status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Return a JSON response."""
    return Response(
        orjson.dumps(body), status_code=status, headers=headers, media_type="application/json"
    )


def install_handlers(app: FastAPI) -> None:
    """Give every error of the app the envelope."""
    app.add_exception_handler(PagewireError, _on_pagewire_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    for kind in (OSError, MemoryError, RuntimeError):
        app.add_exception_handler(kind, _on_shortage)
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


async def _on_shortage(_: Request, error: Exception) -> Response:
    if not is_exhausted(error):
        raise error
    failure = fault_of(error, "")
    _logger.error("a request is refused: %s", failure)
    return error_response(failure)


async def _on_fault(_: Request, error: Exception) -> Response:
    # The server logs the trace; the client learns that it is our fault and no more.
    return error_response(fault_of(error, "the server failed on this request"))
