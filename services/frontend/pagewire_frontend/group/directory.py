"""Where a stored response is found: here, at the peer whose tag its id carries, or nowhere any
more. Stores nothing.
"""

from collections.abc import AsyncIterator, Mapping

from pagewire_frontend.group.membership import Membership
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.http.responses.errors import gone
from pagewire_frontend.http.responses.ids import tag_of
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.pending_response import Body
from pagewire_shared.identity.frontend_tag import SLOT_DIGITS, slot_of


class GroupDirectory:
    """A ResponseDirectory over the whole group: what another process made is asked of that one.

    Raises (all methods):
        ResponseNotFoundError: Nobody holds it; says so when the process that did is gone.
        UnavailableError: The peer that may hold it does not answer.
    """

    def __init__(
        self,
        membership: Membership,
        local: ResponseDirectory,
        peers: Mapping[str, ResponseDirectory],
    ) -> None:
        """Args: `local` of this process alone; `peers` by name, none for what peers themselves
        ask, because a question is passed on once at most."""
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
        """Return all that a response was made from."""
        return await self._holder(response_id).input_items(response_id, tenant)

    async def conversation(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return what a response that builds on this one begins with."""
        return await self._holder(response_id).conversation(response_id, tenant)

    async def events(
        self, response_id: str, tenant: str | None, first: int
    ) -> AsyncIterator[list[bytes]]:
        """Return the events from number `first` on, as they are sent, up to the last."""
        return await self._holder(response_id).events(response_id, tenant, first)

    def _holder(self, response_id: str) -> ResponseDirectory:
        tag = tag_of(response_id)
        # What is no id at all is for the local directory to say.
        if tag is None or tag == self._tag:
            return self._local
        peer = self._peers.get(tag[:SLOT_DIGITS])
        if peer is None:
            # Nobody's, or of an earlier process of this name or of a peer's.
            raise gone(response_id)
        return peer
