"""Finds a stored response by the tag in its id: in this process, at a peer, or nowhere any more."""

from collections.abc import AsyncIterator, Mapping

from pagewire_frontend.group.membership import Membership
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.http.responses.errors import gone
from pagewire_frontend.http.responses.ids import tag_of
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.pending_response import Body
from pagewire_shared.identity.frontend_tag import SLOT_DIGITS, slot_of


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
            membership: Names this process.
            local: Responses of this process alone.
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
