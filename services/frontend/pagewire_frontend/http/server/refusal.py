"""Answers to input that never becomes a request: malformed or oversized HTTP, time-outs, too many
connections, offers of another protocol."""

from collections.abc import Sequence
from http import HTTPStatus

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from pagewire_frontend.http.server.errors import CODE_BY_STATUS, envelope, json_response
from pagewire_frontend.http.server.request_id import REQUEST_ID, RequestIdMiddleware, label_of

TOO_MANY = "too many connections are open"
Headers = Sequence[tuple[bytes, bytes]]


class RefusedError(Exception):
    """The reason for which a connection is ended with an answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def refusal_bytes(refusal: RefusedError, asked: Headers, default_headers: Headers) -> bytes:
    """Return a whole HTTP/1.1 response with the error envelope, which ends the connection.

    Args:
        asked: Headers of the request as far as they are known, for its request id.
    """
    status = HTTPStatus(refusal.status)
    body = orjson.dumps(envelope(status, refusal.message, code=CODE_BY_STATUS[status]))
    headers = [
        *default_headers,
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        (REQUEST_ID.encode(), label_of(asked).encode()),
    ]
    head = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
    return head + b"".join(b"%s: %s\r\n" % pair for pair in headers) + b"\r\n" + body


def at_capacity(app: ASGIApp) -> ASGIApp:
    """Return an application that answers /live as `app` does and refuses all else with 503."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/live":
            await app(scope, receive, send)
            return
        body = envelope(503, TOO_MANY, code=CODE_BY_STATUS[503])
        headers = {"connection": "close", "retry-after": "1"}
        await json_response(body, status=503, headers=headers)(scope, receive, send)

    return RequestIdMiddleware(refuse)


def without_upgrade(method: bytes | None, target: bytes, headers: Headers) -> bytes:
    """Return the head of a request as if it had not offered another protocol (RFC 9110, 7.8)."""
    assert method is not None, "the head was parsed"
    kept = [b"%s: %s\r\n" % pair for pair in headers if pair[0] not in (b"upgrade", b"connection")]
    has_close = any(name == b"connection" and b"close" in value.lower() for name, value in headers)
    close = b"connection: close\r\n" if has_close else b""
    return b"%s %s HTTP/1.1\r\n" % (method, target) + b"".join(kept) + close + b"\r\n"
