"""This process in its group: the private listener, the peers, and what is asked of all together.
Wires the parts together."""

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
    """What the group knows together.

    Attributes:
        responses: The stored responses of all.
        metrics: The numbers of all.
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
        membership: Who this process is, and who the others are; they need not be there yet.
        local: The responses of this process.
        listen: Where the peers ask; None for nowhere.
        peer_seconds: How long a peer may take to answer.

    Raises:
        StartupError: Something else listens there.
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
