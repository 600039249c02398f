"""A small HTTP server for /metrics and /health, in a thread with its own event loop.

Connections are few, with one request each and deadlines of some seconds. Neither a scrape nor a
slow client delays the process.
"""

import asyncio
import http
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from pagewire_shared.process.metrics_access import MetricsAccess
from pagewire_shared.process.metrics_format import is_open_asked
from pagewire_shared.rpc.health_page import FOLDER, is_serving

MAX_CONNECTIONS = 16
HEAD_BYTES = 8 * 1024
HEAD_SECONDS = 5.0
WRITE_SECONDS = 10.0
PATH = "/metrics"
_TLS_SECONDS = {"ssl_handshake_timeout": HEAD_SECONDS, "ssl_shutdown_timeout": HEAD_SECONDS}
# Otherwise prometheus-client writes the colons of names as underscores, which vLLM's have.
_OPEN_METRICS = "application/openmetrics-text; version=1.0.0; escaping=allow-utf-8"
_BEARER = ("WWW-Authenticate", "Bearer")

_END_OF_HEAD = b"\r\n\r\n"
_logger = logging.getLogger(__name__)

Page: TypeAlias = Callable[[dict[str, Any], Callable[..., None]], Iterable[bytes]]
"""A WSGI application; it gets only GET requests for PATH."""


class MetricsServer:
    """Serves a page until the process ends.

    Args:
        access: Who may read it; None for everybody, in plain HTTP.
    """

    def __init__(self, page: Page, access: MetricsAccess | None = None) -> None:
        self._page = page
        self._access = access
        self._num_connections = 0
        self._server: asyncio.Server | None = None

    def start(self, host: str, port: int) -> None:
        """Listen, and serve in a thread. Raises OSError when the address cannot be used."""
        loop = asyncio.new_event_loop()
        context = None if self._access is None else self._access.context
        tls: dict[str, Any] = {} if context is None else {"ssl": context, **_TLS_SECONDS}
        try:
            self._server = loop.run_until_complete(
                asyncio.start_server(
                    self._serve, host, port, limit=HEAD_BYTES, backlog=MAX_CONNECTIONS, **tls
                )
            )
        except BaseException:
            loop.close()
            raise
        threading.Thread(target=loop.run_forever, name="metrics", daemon=True).start()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._num_connections += 1
        try:
            if self._num_connections > MAX_CONNECTIONS:
                answer = _answer(503, b"too many connections\n")
            else:
                answer = await self._answer_to(reader, writer.get_extra_info("peercert"))
            # With a limit of 0, `drain` returns only when the buffer is empty.
            writer.transport.set_write_buffer_limits(0)
            async with asyncio.timeout(WRITE_SECONDS):
                writer.write(answer)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            # The client broke off, or hit a time-out.
            writer.transport.abort()
        finally:
            self._num_connections -= 1
            writer.close()

    async def _answer_to(self, reader: asyncio.StreamReader, peer: Any) -> bytes:
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                head = await reader.readuntil(_END_OF_HEAD)
        except asyncio.LimitOverrunError:
            return _answer(431, b"")
        request, *lines = head.decode("latin-1").split("\r\n")
        words = request.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _answer(400, b"")
        method, target, _ = words
        path, _, query = target.partition("?")
        is_health = path.startswith(FOLDER)
        if path != PATH and not is_health:
            return _answer(404, b"metrics are at /metrics\n")
        if method != "GET":
            return _answer(405, b"", ("Allow", "GET"))
        if is_health:
            return await _health(path.removeprefix(FOLDER))
        headers = {name.strip().lower(): value.strip() for name, _, value in map(_split, lines)}
        if self._access is not None and not self._access.allows(
            headers.get("authorization", ""), peer
        ):
            return _answer(401, b"a token or a certificate is missing\n", _BEARER)
        return self._render(query, headers)

    def _render(self, query: str, asked: Mapping[str, str]) -> bytes:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": PATH, "QUERY_STRING": query}
        if is_open_asked(asked.get("accept", "")):
            environ["HTTP_ACCEPT"] = _OPEN_METRICS
        if "accept-encoding" in asked:
            environ["HTTP_ACCEPT_ENCODING"] = asked["accept-encoding"]
        headers: list[tuple[str, str]] = []
        try:
            body = b"".join(self._page(environ, lambda _, given: headers.extend(given)))
        except Exception:
            _logger.exception("the metrics cannot be shown")
            return _answer(500, b"")
        return _answer(200, body, *headers)


def _split(line: str) -> tuple[str, str, str]:
    return line.partition(":")


async def _health(name: str) -> bytes:
    found = await asyncio.to_thread(is_serving, name)
    if found is None:
        return _answer(404, b"health is at /health/startup, readiness and liveness\n")
    return _answer(200 if found else 503, b"SERVING\n" if found else b"NOT_SERVING\n")


def _answer(status: int, body: bytes, *headers: tuple[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}",
        *(f"{name}: {value}" for name, value in headers),
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join(lines).encode("latin-1") + _END_OF_HEAD + body
