"""Joins this process to its group: the private listener, the peers, their responses and metrics."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from pagewire_frontend.group import peer_service
from pagewire_frontend.group.directory import GroupDirectory
from pagewire_frontend.group.membership import Membership
from pagewire_frontend.group.metrics import GroupMetrics
from pagewire_frontend.group.peer_client import Peer
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.metrics.requests import own_exposition
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.server import start_server


@dataclass(frozen=True, slots=True)
class Group:
    """The group as one.

    Attributes:
        responses: The stored responses of all processes.
        metrics: The metrics of all processes.
    """

    responses: ResponseDirectory
    metrics: GroupMetrics


@contextlib.asynccontextmanager
async def joined(
    membership: Membership,
    local: ResponseDirectory,
    *,
    listen: Address | None,
    peer_seconds: float,
) -> AsyncIterator[Group]:
    """Answer the peers, and be able to ask them, while inside.

    Args:
        membership: Names this process and its peers, which need not be there yet.
        local: The responses of this process.
        listen: Address that the peers ask; None for no listener.
        peer_seconds: How long a peer may take to answer.

    Raises:
        StartupError: The address is taken.
    """
    peers = {
        name: Peer(name, address, timeout_seconds=peer_seconds)
        for name, address in membership.peers.items()
    }
    server = None
    if listen is not None:
        own = GroupDirectory(membership, local, {})
        server = await start_server(
            listen,
            lambda server: peer_service.register(server, own, own_exposition),
            peer_service.SERVICE_NAMES,
            setting="--peer-listen",
        )
        await server.set_serving(True)
    try:
        responses = GroupDirectory(membership, local, peers)
        yield Group(responses, GroupMetrics(own_exposition, list(peers.values())))
    finally:
        for peer in peers.values():
            await peer.close()
        if server is not None:
            await server.stop(0.0)
