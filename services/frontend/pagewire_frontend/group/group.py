"""Joins this process to its group: the private listener, the peers, their responses and metrics."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import grpc.aio

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.group import peer_service
from pagewire_frontend.group.keys import GroupKeys
from pagewire_frontend.group.membership import Membership
from pagewire_frontend.group.metrics import GroupMetrics
from pagewire_frontend.group.newcomers import announce, restore
from pagewire_frontend.group.peer_client import Peer
from pagewire_frontend.group.recipes import GroupRecipes
from pagewire_frontend.group.responses import (
    GroupDirectory,
    GroupRoute,
    OwnRoute,
    PeerRoute,
    RoutedResponses,
)
from pagewire_frontend.group.streams import HeldStreams, PeerStreams, StreamFinder
from pagewire_frontend.http.kept_streams.directory import StreamDirectory
from pagewire_frontend.http.kept_streams.keys import KeyDirectory, LocalKeys
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import RecipeMirror, RecipeStore
from pagewire_frontend.http.responses.directory import HeldResponses, ResponseDirectory
from pagewire_frontend.metrics.requests import own_exposition
from pagewire_frontend.traces.history import RequestHistory
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.server import RpcServer, start_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The group as one."""

    responses: ResponseDirectory
    streams: StreamDirectory
    held: HeldStreams
    recipes: RecipeMirror
    keys: KeyDirectory
    metrics: GroupMetrics
    peers: Sequence[Peer]


@contextlib.asynccontextmanager
async def joined(
    membership: Membership,
    local: HeldResponses,
    streams: LocalStreams,
    adapters: AdapterRegistry,
    *,
    history: RequestHistory,
    listen: Address | None,
    peer_seconds: float,
    num_replicas: int = 1,
) -> AsyncIterator[Group]:
    """Answer the peers, and be able to ask them, while inside.

    Args:
        local: Responses of this process.
        streams: Its kept streams.
        adapters: Changed as peers ask.
        history: Its requests that have ended.
        membership: Names this process and its peers, which need not be there yet.
        listen: Address that the peers ask; None for no listener.
        peer_seconds: How long a peer may take to answer.
        num_replicas: How many peers keep the recipe of each stream.

    Raises:
        StartupError: The address is taken.
    """
    peers = {
        name: Peer(name, address, timeout_seconds=peer_seconds)
        for name, address in membership.peers.items()
    }
    keys = LocalKeys()
    store = RecipeStore(streams.limits.max_bytes, streams.limits.retention_seconds)
    held = HeldStreams(streams, store)
    group_keys = GroupKeys(membership, keys, peers)
    recipes = GroupRecipes(peers, streams, store, name=membership.name, num_replicas=num_replicas)
    own = OwnRoute(local, held)
    finder = StreamFinder(membership, held, peers, num_replicas=num_replicas)
    service = partial(
        peer_service.register,
        responses=RoutedResponses(PeerRoute(membership.name, own, peers)),
        streams=PeerStreams(membership.name, held, peers),
        keys=keys,
        recipes=store,
        history=history,
        exposition=own_exposition,
        adapters=adapters,
        restore=partial(restore, recipes, group_keys),
    )
    server = await _listening(listen, service) if listen is not None else None
    renewing = asyncio.create_task(recipes.run())
    try:
        await announce(membership.name, list(peers.values()))
        yield Group(
            responses=GroupDirectory(GroupRoute(membership, own, peers, finder)),
            streams=finder,
            held=held,
            recipes=recipes,
            keys=group_keys,
            metrics=GroupMetrics(own_exposition, list(peers.values())),
            peers=list(peers.values()),
        )
    finally:
        await _leave(renewing, peers, server)


async def _leave(
    renewing: "asyncio.Task[None]", peers: Mapping[str, Peer], server: RpcServer | None
) -> None:
    """End what a member runs."""
    renewing.cancel()
    await asyncio.gather(renewing, return_exceptions=True)
    for peer in peers.values():
        await peer.close()
    if server is not None:
        await server.stop(0.0)


async def _listening(address: Address, service: Callable[[grpc.aio.Server], None]) -> RpcServer:
    """Return a server that answers the peers."""
    server = await start_server(
        address, service, peer_service.SERVICE_NAMES, setting="--peer-listen"
    )
    await server.set_serving(True)
    return server
