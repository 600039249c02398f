"""uvicorn's HTTP/1.1 connection with bounds on sizes and times, and our own error answers.

uvicorn answers malformed requests in plain text, bounds no head with httptools, and waits for ever
for the rest of a request. llhttp still parses, and decides which requests are malformed.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from pagewire_frontend.http.server.idle_connections import IdleConnections
from pagewire_frontend.http.server.limits import ConnectionLimits
from pagewire_frontend.http.server.refusal import (
    TOO_MANY,
    RefusedError,
    at_capacity,
    refusal_bytes,
    without_upgrade,
)
from pagewire_frontend.http.server.timer import Timer

_logger = logging.getLogger(__name__)

MAX_PIPELINED = 32
RESERVE_CONNECTIONS = 64
"""Connections above max_connections whose requests are read before they are refused; requests of
further connections are not read."""
MAX_UNREAD = 1024
"""Of the further connections this many get an answer at once; more are cut."""
_LINGER_SECONDS = 1.0
_TLS_BUFFER_BYTES = 64 * 1024
_PROBE_SECONDS = 0.5
_PROBE = b"HTTP/1.1 100 Continue\r\n\r\n"


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, limits: ConnectionLimits, idle: IdleConnections, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._limits = limits
        self._idle = idle
        self._running: RequestResponseCycle | None = None
        self._refusal: RefusedError | None = None
        self._is_in_head = self._is_in_body = False
        self._closes_after_body = False
        # Method of a request that offers another protocol, until it is read without the offer.
        self._offer_method: bytes | None = None
        # Bytes of the current head: in whole lines, and in pieces of an unfinished line.
        self._num_head_bytes = self._num_fed_bytes = 0
        self._body_began_at = self._body_came_at = 0.0
        self._num_stalled_bytes = 0
        self._head_timer = Timer(self.loop, self._on_slow_head)
        self._body_timer = Timer(self.loop, self._check_body)
        self._stall_timer = Timer(self.loop, self._check_stall)
        self._linger_timer = Timer(self.loop, self.timeout_keep_alive_handler)
        self._probe_timer = Timer(self.loop, self._probe)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin a connection."""
        super().connection_made(transport)
        if transport.get_extra_info("sslcontext") is not None:
            # What waits to be encrypted; 512 KiB by default.
            transport.set_write_buffer_limits(_TLS_BUFFER_BYTES)
        self.flow = _PipelineFlow(transport, lambda: bool(self.pipeline))
        num_above = len(self.connections) - self._limits.max_connections
        if num_above > 0 and self._idle.make_room(self):
            # The idle connection is closed, but still in the list.
            num_above = 0
        if num_above > RESERVE_CONNECTIONS + MAX_UNREAD:
            transport.abort()
            return
        if num_above > RESERVE_CONNECTIONS:
            self._refuse(RefusedError(503, TOO_MANY))
            return
        if num_above > 0:
            self.app = at_capacity(self.app)
        self._become_idle()
        self._head_timer.start(self._limits.head_seconds)

    def close_idle(self) -> None:
        """End a connection that has no request."""
        self._head_timer.stop()
        self.transport.close()

    def _become_idle(self) -> None:
        self._idle.enter(self, self.client[0] if self.client else None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End a connection, and notify the request that is being answered."""
        for timer in (
            *(self._head_timer, self._body_timer, self._stall_timer),
            *(self._linger_timer, self._probe_timer),
        ):
            timer.stop()
        self._idle.leave(self)
        if self._running is not None and not self._running.response_complete:
            # uvicorn notifies the last request, which may be another that still waits.
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._unset_keepalive_if_required()
        if self._refusal is not None:
            return
        if not (self._is_busy or self._is_in_body or self._head_timer.is_running):
            self._head_timer.start(self._limits.head_seconds)
        was_in_head = self._is_in_head
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            known = error.__context__
            self._refuse(
                known
                if isinstance(known, RefusedError)
                else RefusedError(400, f"this is no valid HTTP/1.1 request: {error}")
            )
            return
        if self._is_in_head:
            self._num_fed_bytes = self._num_fed_bytes + len(data) if was_in_head else 0
            if self._num_fed_bytes > self._limits.max_header_bytes:
                self._refuse(self._large_head())
        elif self._is_in_body and not self._body_timer.is_running:
            self._body_timer.start(self._limits.body_idle_seconds)

    def eof_received(self) -> bool:  # type: ignore[override]
        """Take the end of the client's bytes; return whether the connection stays.

        The client may send no more and wait for its answer, or it may be gone. Both look the same
        until bytes are written, which can be done until the answer begins. A stream that has begun
        and stands still would not find out for long: a client that ends it so counts as gone.
        """
        if self._is_in_head or self._is_in_body or not self._is_busy or self._refusal is not None:
            return False
        if not self.transport.can_write_eof():
            # TLS ends in both directions at once.
            return False
        if self._running is not None and self._running.response_started:
            return False
        self.cycle.keep_alive = False
        self._probe()
        return True

    def _probe(self) -> None:
        """Find out whether a client that sends no more is there: a client that is gone resets the
        connection, which the next write reports. A client may get any number of these answers (RFC
        9110, 15.2)."""
        running = self._running
        is_due = running is not None and not running.response_started
        if is_due and self.parser.get_http_version() == "1.1":
            self.transport.write(_PROBE)
        if not self.transport.is_closing():
            self._probe_timer.start(_PROBE_SECONDS)

    def _feed(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # The parser leaves out the body then, which Java's and curl's offers of HTTP/2
                # have. Only HTTP/1.1 is spoken here: the request is read again without the offer.
                self.parser = httptools.HttpRequestParser(self)
                head = without_upgrade(self._offer_method, self.url, self.headers)
                self._offer_method = None
                data = head + data[upgrade.args[0] :]

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._is_in_head = True
        self._num_head_bytes = self._num_fed_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        super().on_url(url)
        if len(self.url) > self._limits.max_target_bytes:
            most = self._limits.max_target_bytes
            raise RefusedError(414, f"path and query are longer than {most} bytes")
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer; trailers are only counted."""
        self._count_head(len(name) + len(value) + 4)
        if self._is_in_head:
            super().on_header(name, value)
            if len(self.headers) > self._limits.max_header_count:
                most = self._limits.max_header_count
                raise RefusedError(431, f"there are more than {most} headers")

    def on_headers_complete(self) -> None:
        """Start the request."""
        self._is_in_head = False
        self._head_timer.stop()
        self._idle.leave(self)
        version = self.parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise RefusedError(400, f"HTTP/{version} is not spoken here, HTTP/1.1 is")
        num_hosts = sum(name == b"host" for name, _ in self.headers)
        if num_hosts > 1 or (num_hosts == 0 and version == "1.1"):
            raise RefusedError(400, f"a request has one Host header, this has {num_hosts}")
        if self.parser.get_method() == b"CONNECT":
            raise RefusedError(400, "this is no proxy: CONNECT is not served")
        if len(self.pipeline) >= MAX_PIPELINED:
            raise RefusedError(400, f"more than {MAX_PIPELINED} requests wait for their answers")
        if self.parser.should_upgrade():
            self._offer_method = self.parser.get_method()
            return
        super().on_headers_complete()
        self.cycle.transport = _LateClose(self, self.cycle)  # type: ignore[assignment]
        self._is_in_body = True
        self._body_began_at = self._body_came_at = self.loop.time()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        super().on_body(body)
        self._body_came_at = self.loop.time()

    def on_message_complete(self) -> None:
        """End a request."""
        if self._offer_method is None:
            self._is_in_body = False
            self._body_timer.stop()
            super().on_message_complete()
            if self._closes_after_body:
                self.transport.close()

    def close_after(self, cycle: RequestResponseCycle) -> None:
        """End the connection of a written answer, once the rest of the request was read.

        Closed at once, bytes that the client still sends would wipe out the answer in its kernel.
        The rest is read and dropped, within the time that a body may take.
        """
        if cycle is self.cycle and self._is_in_body and not self.transport.is_closing():
            self._closes_after_body = True
            self._end_writing()
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """Go on with the next request, or answer a malformed one behind it."""
        super().on_response_complete()
        if self._refusal is not None and not self._is_busy and not self.transport.is_closing():
            self._answer_refusal()
        elif not (self._is_busy or self._is_in_body or self.transport.is_closing()):
            self._become_idle()

    def pause_writing(self) -> None:
        """Start the stall timer: the client does not take ready bytes."""
        super().pause_writing()
        self._num_stalled_bytes = self.transport.get_write_buffer_size()
        self._stall_timer.start(self._limits.stall_seconds)

    def resume_writing(self) -> None:
        """Stop the stall timer: the client has caught up."""
        super().resume_writing()
        self._stall_timer.stop()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _is_busy(self) -> bool:
        is_running = self._running is not None and not self._running.response_complete
        return is_running or bool(self.pipeline)

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > self._limits.max_header_bytes:
            raise self._large_head()

    def _large_head(self) -> RefusedError:
        most = self._limits.max_header_bytes
        return RefusedError(431, f"the headers are larger than {most} bytes")

    def _on_slow_head(self) -> None:
        if self._is_in_head:
            seconds = self._limits.head_seconds
            self._refuse(RefusedError(408, f"the headers took longer than {seconds:g} seconds"))
        elif not self._is_busy:
            self.transport.close()

    def _check_body(self) -> None:
        limits, now = self._limits, self.loop.time()
        if self.flow.read_paused:
            # This server keeps the client waiting, not the other way round.
            self._body_came_at = now
        ends_at = min(
            self._body_came_at + limits.body_idle_seconds, self._body_began_at + limits.body_seconds
        )
        if now < ends_at:
            self._body_timer.start(ends_at - now)
        else:
            self._refuse(RefusedError(408, "the body did not come in time"))

    def _check_stall(self) -> None:
        num_left = self.transport.get_write_buffer_size()
        if num_left < self._num_stalled_bytes:
            self._num_stalled_bytes = num_left
            self._stall_timer.start(self._limits.stall_seconds)
            return
        _logger.info("cut %s: it took nothing for %g s", self.client, self._limits.stall_seconds)
        connection = self.transport.get_extra_info("socket")
        if connection is not None:
            # Reset the connection; else the kernel retries its buffered bytes for minutes.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _refuse(self, refusal: RefusedError) -> None:
        """Take no more of this connection; answer after the answers to all requests before."""
        self._refusal = refusal
        self._head_timer.stop()
        self._body_timer.stop()
        if self._is_in_body:
            self._drop_unfinished()
        if not self._is_busy:
            self._answer_refusal()

    def _drop_unfinished(self) -> None:
        """Drop the request whose body will never be complete."""
        cycle, running = self.cycle, self._running
        if cycle is not running:
            # The newest request is at the left end of uvicorn's deque.
            self.pipeline.popleft()
        elif cycle.response_started:
            # The request was answered early: this connection ends with that answer.
            cycle.keep_alive = False
            if cycle.response_complete:
                self.transport.close()
        else:
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()

    def _end_writing(self) -> None:
        if self.transport.can_write_eof():  # with TLS only both directions end
            self.transport.write_eof()

    def _answer_refusal(self) -> None:
        if self._refusal is None or self.transport.is_closing():
            return
        asked = self.headers or ()
        self.transport.write(refusal_bytes(self._refusal, asked, self.server_state.default_headers))
        # Closed at once, bytes that the client still sends would wipe out the answer.
        self._end_writing()
        self._linger_timer.start(_LINGER_SECONDS)


class _LateClose:
    """A response's view of its transport; the connection decides when to close it."""

    def __init__(self, protocol: BoundedProtocol, cycle: RequestResponseCycle) -> None:
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing
        self._protocol = protocol
        self._cycle = cycle

    def close(self) -> None:
        """End the connection."""
        self._protocol.close_after(self._cycle)


class _PipelineFlow(FlowControl):
    """Stops reading while whole requests wait."""

    def __init__(self, transport: asyncio.Transport, has_waiting: Callable[[], bool]) -> None:
        super().__init__(transport)
        self._has_waiting = has_waiting

    def resume_reading(self) -> None:
        """Read on, unless requests wait."""
        if not self._has_waiting():
            super().resume_reading()
