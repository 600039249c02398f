"""Accepts TLS in front of an HTTP connection, within bounds.

A server that is made with a certificate bounds no connections whose handshake is not complete: its
protocols begin after it. Here the plain connection begins first and is counted.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, Final

from pagewire_frontend.access.public_tls import PublicTls
from pagewire_frontend.http.server.limits import ConnectionLimits

_logger = logging.getLogger(__name__)

MAX_HANDSHAKES: Final = 1024
"""Handshakes under way at once; further connections are cut."""
_BUFFER_BYTES: Final = 64 * 1024
"""Bytes to encrypt that wait for a client, at most; asyncio would keep 512 KiB."""
_SHUTDOWN_SECONDS: Final = 5.0


class Handshakes:
    """The handshakes of one server that are under way."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.seconds = limits.head_seconds
        self.tasks: set[asyncio.Task[None]] = set()


class TlsGate(asyncio.Protocol):
    """One connection until its handshake is complete; then a connection of HTTP takes over."""

    def __init__(
        self,
        tls: PublicTls,
        handshakes: Handshakes,
        make: Callable[..., asyncio.Protocol],
        **options: Any,
    ) -> None:
        """Args: `make` with `options` makes the connection of HTTP."""
        self._tls = tls
        self._handshakes = handshakes
        self._make = make
        self._options = options
        self._early: list[bytes] = []
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        tasks = self._handshakes.tasks
        if len(tasks) >= MAX_HANDSHAKES:
            transport.abort()
            return
        transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._shake_hands(transport))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def data_received(self, data: bytes) -> None:
        """Keep what comes with the end of the handshake."""
        self._early.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """End before HTTP has begun."""
        self._is_lost = True

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                plain,
                self,
                self._tls.context(),
                server_side=True,
                ssl_handshake_timeout=self._handshakes.seconds,
                ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
            )
        except (OSError, ssl.SSLError) as error:
            # Clients that speak no TLS are as usual as scanners: no line for each.
            _logger.debug("no TLS with %s: %s", plain.get_extra_info("peername"), error)
            plain.abort()
            return
        if encrypted is None or self._is_lost:
            return
        connection = self._make(**self._options)
        encrypted.set_write_buffer_limits(_BUFFER_BYTES)
        connection.connection_made(encrypted)
        encrypted.set_protocol(connection)
        for data in self._early:
            connection.data_received(data)
