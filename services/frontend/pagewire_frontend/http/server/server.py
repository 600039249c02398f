"""Runs uvicorn in the event loop of the process: binds the socket early, leaves signals to the
process."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from pagewire_frontend.access.public_tls import PublicTls
from pagewire_frontend.http.server.bounded_protocol import BoundedProtocol
from pagewire_frontend.http.server.direct_write import DirectWrites
from pagewire_frontend.http.server.idle_connections import IdleConnections
from pagewire_frontend.http.server.limits import ConnectionLimits
from pagewire_frontend.http.server.tls_gate import TlsGate
from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address

_BACKLOG = 2048
_SEND_BUFFER_BYTES = 256 * 1024
_TLS_CLOSE_SECONDS = 2.0
"""Longest wait for a client to close TLS as well; many close their socket without that."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, gate: TlsGate | None, seconds: float) -> None:
        super().__init__(config)
        self._gate = gate
        self._seconds = seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen as uvicorn does, which has no time limit for a handshake."""
        if self._gate is None:
            await super().startup(sockets)
            return

        def connection() -> asyncio.Protocol:
            make: Any = self.config.http_protocol_class
            made: asyncio.Protocol = make(
                config=self.config, server_state=self.server_state, app_state={}
            )
            return made

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                connection,
                sock=one,
                ssl=self._gate,
                ssl_handshake_timeout=self._seconds,
                ssl_shutdown_timeout=_TLS_CLOSE_SECONDS,
                backlog=self.config.backlog,
            )
            for one in sockets or ()
        ]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process: it ends both servers in order."""
        yield


class HttpServer:
    """The HTTP server of a frontend; `address` holds the port really bound."""

    def __init__(
        self,
        app: ASGIApp,
        address: Address,
        *,
        grace_seconds: float,
        limits: ConnectionLimits | None = None,
        is_port_shared: bool = False,
        tls: PublicTls | None = None,
    ) -> None:
        """Bind and accept connections, which wait until `run`.

        Args:
            address: Address to listen on; port 0 picks one.
            grace_seconds: Time that open requests get in `stop`.
            is_port_shared: Several processes of this user may listen on this port.
            tls: Certificate of the port; None for none.

        Raises:
            StartupError: The port is taken.
        """
        limits = limits or ConnectionLimits()
        # uvicorn calls this for each connection, as it would call a protocol class.
        protocol: Any = functools.partial(
            BoundedProtocol, limits, IdleConnections(limits.max_idle_per_address)
        )
        self._socket = _bind(address, is_port_shared)
        self.address = Address(host=address.host, port=self._socket.getsockname()[1])
        config = uvicorn.Config(
            DirectWrites(app),
            http=protocol,
            ws="none",
            loop="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=round(limits.keep_alive_seconds),
            timeout_graceful_shutdown=max(1, round(grace_seconds)),
        )
        gate = None if tls is None else TlsGate.of(tls, limits.head_seconds)
        self._server = _Server(config, gate, limits.head_seconds)
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Take no new requests; return when the open ones have ended or the grace is over."""
        self._server.should_exit = True
        await self._ended.wait()

    def close(self) -> None:
        """Free the port."""
        self._socket.close()


def _bind(address: Address, is_port_shared: bool) -> socket.socket:
    try:
        info = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise StartupError(f"--host: {address.host!r} is no address", field="host") from error
    # Without the name of TCP asyncio leaves Nagle's algorithm on: 40 ms for two writes.
    bound = socket.socket(info[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: else the kernel keeps up to 4 MiB for a client that reads nothing.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        if is_port_shared:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        bound.bind(info[4])
        bound.listen(_BACKLOG)
    except OSError as error:
        bound.close()
        raise StartupError(
            f"--port: cannot listen on {address}: {error.strerror}", field="port"
        ) from error
    bound.setblocking(False)
    return bound
