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
from pagewire_frontend.group.peer_client import Peer
from pagewire_frontend.group.recipes import GroupRecipes
from pagewire_frontend.group.streams import HeldStreams, PeerStreams, StreamFinder
from pagewire_frontend.http.kept_streams.directory import StreamDirectory
from pagewire_frontend.http.kept_streams.keys import KeyDirectory, LocalKeys
from pagewire_frontend.http.kept_streams.local_streams import LocalStreams
from pagewire_frontend.http.kept_streams.recipes import RecipeMirror, RecipeStore
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.http.responses.ids import gone, tag_of
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.pending_response import Body
from pagewire_frontend.metrics.requests import own_exposition
from pagewire_frontend.traces.history import RequestHistory
from pagewire_shared.identity.frontend_tag import SLOT_DIGITS, slot_of
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.server import RpcServer, start_server


class GroupDirectory:
    """A ResponseDirectory over the whole group: asks the process that made a response.

    Raises (all methods):
        ResponseNotFoundError: No process holds it; the text says if the process that did is gone.
        UnavailableError: The peer that may hold it does not answer.
    """

    def __init__(
        self,
        membership: Membership,
        local: ResponseDirectory,
        peers: Mapping[str, ResponseDirectory],
    ) -> None:
        """Create the directory of one process.

        Args:
            peers: Directories by name; empty for questions that peers ask, because a question is
                passed on once at most.
        """
        self._tag = membership.tag
        self._local = local
        self._peers = {slot_of(name): peer for name, peer in peers.items()}

    async def get(self, response_id: str, tenant: str | None) -> Body:
        """Return a response as it is now."""
        return await self._holder(response_id).get(response_id, tenant)

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a response that still runs and return it."""
        return await self._holder(response_id).cancel(response_id, tenant)

    async def delete(self, response_id: str, tenant: str | None) -> None:
        """Forget a response."""
        await self._holder(response_id).delete(response_id, tenant)

    async def input_items(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return all items that a response was made from."""
        return await self._holder(response_id).input_items(response_id, tenant)

    async def conversation(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the items that a response that builds on this one begins with."""
        return await self._holder(response_id).conversation(response_id, tenant)

    async def events(
        self, response_id: str, tenant: str | None, first: int
    ) -> AsyncIterator[list[bytes]]:
        """Return the events from number `first` on, as they are sent, up to the last."""
        return await self._holder(response_id).events(response_id, tenant, first)

    def _holder(self, response_id: str) -> ResponseDirectory:
        tag = tag_of(response_id)
        # The local directory reports malformed ids.
        if tag is None or tag == self._tag:
            return self._local
        peer = self._peers.get(tag[:SLOT_DIGITS])
        if peer is None:
            # Made by no process of the group, or by an earlier process of its name.
            raise gone(response_id)
        return peer


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
    local: ResponseDirectory,
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
    recipes = GroupRecipes(peers, streams, num_replicas=num_replicas)
    service = partial(
        peer_service.register,
        responses=GroupDirectory(membership, local, {}),
        streams=PeerStreams(membership.name, held, peers),
        keys=keys,
        recipes=store,
        history=history,
        exposition=own_exposition,
        adapters=adapters,
    )
    server = await _listening(listen, service) if listen is not None else None
    renewing = asyncio.create_task(recipes.run())
    try:
        others = list(peers.values())
        yield Group(
            responses=GroupDirectory(membership, local, peers),
            streams=StreamFinder(membership, held, peers, num_replicas=num_replicas),
            held=held,
            recipes=recipes,
            keys=GroupKeys(membership, keys, peers),
            metrics=GroupMetrics(own_exposition, others),
            peers=others,
        )
    finally:
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
