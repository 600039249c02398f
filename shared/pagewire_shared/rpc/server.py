"""The gRPC server that every role runs: options, error mapping, health and reflection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from pagewire_shared.errors import StartupError
from pagewire_shared.rpc.address import Address, require_free
from pagewire_shared.rpc.errors import ErrorInterceptor
from pagewire_shared.rpc.options import server_options

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass(slots=True)
class RpcServer:
    """A started server and its health; `address` holds the port really bound."""

    server: grpc.aio.Server
    health: "health.aio.HealthServicer"
    address: Address
    service_names: tuple[str, ...]

    async def set_serving(self, is_serving: bool) -> None:
        """Answer health checks of the server and of every service with SERVING or NOT_SERVING."""
        for name in ("", *self.service_names):
            await self.health.set(name, SERVING if is_serving else NOT_SERVING)

    async def stop(self, grace_seconds: float) -> None:
        """Answer NOT_SERVING, take no new calls and end the open ones after the grace."""
        await self.set_serving(False)
        await self.server.stop(grace_seconds)


async def start_server(
    address: Address,
    register: Callable[[grpc.aio.Server], None],
    service_names: Sequence[str],
    *,
    setting: str,
    is_port_shared: bool = False,
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> RpcServer:
    """Start a server on `address`, NOT_SERVING until `set_serving(True)`.

    Args:
        address: Where to listen; port 0 picks one.
        register: Adds the servicers to the server.
        service_names: Full names of the services, for health and reflection.
        setting: Named in the StartupError when the address is taken.
        is_port_shared: Several processes may listen on this port.
        interceptors: See each call after the one that turns errors into statuses.
    """
    if not is_port_shared:
        require_free(address, setting=setting)
    server = grpc.aio.server(
        interceptors=[ErrorInterceptor(), *interceptors],
        options=server_options(is_port_shared=is_port_shared),
    )
    register(server)
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = (*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    try:
        port = server.add_insecure_port(str(address))
    except RuntimeError as error:
        raise StartupError(f"{setting}: cannot listen on {address}", field=setting) from error
    await server.start()
    bound = address if address.is_unix else Address(host=address.host, port=port)
    started = RpcServer(server, servicer, bound, tuple(service_names))
    await started.set_serving(False)
    return started
