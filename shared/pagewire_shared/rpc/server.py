"""The gRPC server that every role runs: options, error mapping, health and reflection."""

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc import health_page, links
from pagewire_shared.rpc.address import Address, require_free
from pagewire_shared.rpc.errors import ErrorInterceptor
from pagewire_shared.rpc.options import Options, server_options


class SocketFile:
    """The path at which clients find the socket of the present server."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._numbers = itertools.count(1)
        self._inode: int | None = None

    def next_name(self) -> str:
        """Return a path that no earlier server has bound."""
        return f"{self._path}.{next(self._numbers)}"

    def publish(self, name: str) -> None:
        """Move the socket bound at `name` to the path of the address."""
        inode = os.stat(name).st_ino
        os.rename(name, self._path)
        self._inode = inode

    def remove(self) -> None:
        """Remove the file, unless another process has replaced it."""
        with contextlib.suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()


SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

STARTUP = "startup"
"""Health service that serves once the start is complete, and from then on."""
READINESS = "readiness"
"""Health service that serves while calls are served; the same as the empty name."""
LIVENESS = "liveness"
"""Health service that serves while the process makes progress."""


_logger = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1


@dataclass(slots=True, kw_only=True)
class RpcServer:
    """A started server and its health; `address` has the port that was bound.

    Health has a name for each probe of an orchestrator: STARTUP, READINESS and LIVENESS.

    A server that ends by itself is replaced by a new one: any client can make grpcio's server take
    no new calls, by a path that is not UTF-8 (seen with 1.85). Open calls go on.
    """

    server: grpc.aio.Server
    health: "health.aio.HealthServicer"
    address: Address
    service_names: tuple[str, ...]
    _open: Callable[[Address], Awaitable[tuple[grpc.aio.Server, int]]]
    _socket_file: SocketFile | None = None
    _keeper: "asyncio.Task[None] | None" = None
    _ended: "dict[grpc.aio.Server, asyncio.Task[None]]" = field(default_factory=dict)

    async def set_serving(self, is_serving: bool) -> None:
        """Answer health checks of the server and of every service with SERVING or NOT_SERVING. A
        server that serves has also started."""
        for name in ("", READINESS, *self.service_names):
            await self._set(name, is_serving)
        if is_serving:
            await self.set_started()

    async def set_started(self) -> None:
        """Answer from now on that the start is complete."""
        await self._set(STARTUP, True)

    async def set_alive(self, is_alive: bool) -> None:
        """Set the answer to liveness probes; a process that hangs does not answer at all."""
        await self._set(LIVENESS, is_alive)

    async def _set(self, name: str, is_serving: bool) -> None:
        await self.health.set(name, SERVING if is_serving else NOT_SERVING)
        if name in (STARTUP, READINESS, LIVENESS):
            health_page.note(name, is_serving)

    async def stop(self, grace_seconds: float) -> None:
        """Answer NOT_SERVING, take no new calls and end open calls after the grace."""
        if self._keeper is not None:
            self._keeper.cancel()
        await self.set_serving(False)
        if self._socket_file is not None:
            self._socket_file.remove()
        await asyncio.gather(*(one.stop(grace_seconds) for one in (self.server, *self._ended)))

    async def _begin(self) -> None:
        """Set the health of the start, and watch the server until `stop`."""
        await self.set_serving(False)
        await self._set(STARTUP, False)
        await self.set_alive(True)
        self._keeper = asyncio.create_task(self._keep_listening())

    async def _keep_listening(self) -> None:
        """Replace a server that has ended by itself."""
        while True:
            # True while the server serves. grpcio has logged the reason of its end.
            with contextlib.suppress(Exception):
                while await self.server.wait_for_termination(_LOOK_SECONDS):
                    pass
            _logger.error("the gRPC server at %s has ended by itself; it begins anew", self.address)
            if self.server not in self._ended:
                self._ended[self.server] = asyncio.create_task(self._outlive(self.server))
            try:
                self.server, _ = await self._open(self.address)
            except (RuntimeError, OSError):
                _logger.exception("cannot listen on %s", self.address)
                await asyncio.sleep(_LOOK_SECONDS)

    async def _outlive(self, server: grpc.aio.Server) -> None:
        """Keep a server that has ended until its last call has ended."""
        with contextlib.suppress(Exception):
            await server.wait_for_termination()
        del self._ended[server]


def _listen(server: grpc.aio.Server, target: str, credentials: Any) -> int:
    if credentials is None:
        return server.add_insecure_port(target)
    return server.add_secure_port(target, credentials)


async def start_server(
    address: Address,
    register: Callable[[grpc.aio.Server], None],
    service_names: Sequence[str],
    *,
    setting: str,
    is_port_shared: bool = False,
    public: links.ServerGuard | None = None,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
    options: Options | None = None,
) -> RpcServer:
    """Start a server on `address`, NOT_SERVING until `set_serving(True)`.

    Args:
        address: Address to listen on; port 0 picks a free port.
        register: Adds the servicers to the server.
        service_names: Full names of the services, for health and reflection.
        setting: Setting that the StartupError names when the address is taken.
        is_port_shared: Several processes may listen on this port.
        public: How clients speak to a public server. None where callers are roles; see links.py.
        interceptors: Interceptors behind the one that turns errors into statuses.
        options: Options of the server; None for those of control streams.
    """
    if not is_port_shared:
        require_free(address, setting=setting)
    guard = links.guard(address, setting=setting) if public is None else public
    servicer = health.aio.HealthServicer()
    socket_file = SocketFile(address.path) if address.is_unix else None

    async def open_server(where: Address) -> tuple[grpc.aio.Server, int]:
        server = grpc.aio.server(
            interceptors=[ErrorInterceptor(), *guard.interceptors, *interceptors],
            options=server_options(is_port_shared=is_port_shared) if options is None else options,
        )
        register(server)
        health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
        own = (health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection((*service_names, *own), server)
        if socket_file is None:
            port = _listen(server, str(where), guard.credentials)
            await server.start()
        else:
            name = socket_file.next_name()
            port = server.add_insecure_port(f"unix:{name}")
            await server.start()
            socket_file.publish(name)
        return server, port

    try:
        server, port = await open_server(address)
    except (RuntimeError, OSError) as error:
        raise StartupError(f"{setting}: cannot listen on {address}", field=setting) from error
    started = RpcServer(
        server=server,
        health=servicer,
        address=address if address.is_unix else replace(address, port=port),
        service_names=tuple(service_names),
        _open=open_server,
        _socket_file=socket_file,
    )
    await started._begin()
    return started
