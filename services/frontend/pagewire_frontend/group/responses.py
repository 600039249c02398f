"""Finds responses over the whole group, and has those of lost frontends made again."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Protocol, TypeVar

from pagewire_frontend.group.asking import first_answer, path_before
from pagewire_frontend.group.membership import Membership
from pagewire_frontend.group.streams import FollowedReading, HeldStreams, StreamFinder
from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.ids import (
    StreamElsewhereError,
    StreamLostError,
    StreamNotFoundError,
    stream_elsewhere,
)
from pagewire_frontend.http.responses.directory import HeldResponses, ResponseDirectory
from pagewire_frontend.http.responses.ids import ResponseNotFoundError, gone, not_found, tag_of
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.pending_response import Body
from pagewire_shared.errors import PagewireError, UnavailableError

Answer = TypeVar("Answer")
Question = Callable[[ResponseDirectory], Awaitable[Answer]]
CANCELLED: Final = "cancelled"
MAKING_SECONDS: Final = 5.0
"""How long a question waits until a response that is made again has a token."""


class Route(Protocol):
    """A way to where a response is."""

    async def ask(self, response_id: str, tenant: str | None, question: Question[Answer]) -> Answer:
        """Return what the one answers that has the response. Raises PagewireError."""
        ...

    async def forget(self, response_id: str, tenant: str | None) -> None:
        """Forget the response and its recipes. Raises PagewireError."""
        ...


class RoutedResponses:
    """The ResponseDirectory at the end of a route."""

    def __init__(self, route: Route) -> None:
        self._route = route

    async def get(self, response_id: str, tenant: str | None) -> Body:
        """Return a response as it is now."""
        return await self._route.ask(response_id, tenant, lambda one: one.get(response_id, tenant))

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a response that still runs and return it."""
        return await self._route.ask(
            response_id, tenant, lambda one: one.cancel(response_id, tenant)
        )

    async def delete(self, response_id: str, tenant: str | None) -> None:
        """Forget a response."""
        await self._route.forget(response_id, tenant)

    async def input_items(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return all items that a response was made from."""
        return await self._route.ask(
            response_id, tenant, lambda one: one.input_items(response_id, tenant)
        )

    async def conversation(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the items that a response that builds on this one begins with."""
        return await self._route.ask(
            response_id, tenant, lambda one: one.conversation(response_id, tenant)
        )

    async def events(self, response_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read the events from number `first` on; see ResponseDirectory."""
        return await self._route.ask(
            response_id, tenant, lambda one: one.events(response_id, tenant, first)
        )


class OwnRoute:
    """To the responses of this process, and those that it makes again from recipes."""

    def __init__(self, local: HeldResponses, streams: HeldStreams) -> None:
        self.local = local
        self.streams = streams

    async def ask(self, response_id: str, tenant: str | None, question: Question[Answer]) -> Answer:
        """Return an answer of this process.

        Raises:
            StreamElsewhereError: It has neither the response nor its recipe.
            StreamLostError: It cannot be made again.
            UnavailableError: It is made again, and that has not begun yet.
        """
        if not self.local.has(response_id):
            try:
                async with asyncio.timeout(MAKING_SECONDS):
                    await self.streams.make(response_id, tenant)
            except TimeoutError:
                raise UnavailableError(
                    "the response is made again, and has no token yet; ask again"
                ) from None
        return await question(self.local)

    async def forget(self, response_id: str, tenant: str | None) -> None:
        """Forget a response that is here; nothing is made again for that."""
        if not self.local.has(response_id):
            raise stream_elsewhere(response_id)
        await self.local.delete(response_id, tenant)


class PeerRoute:
    """To what peers ask for: what is here, or is to be made again here because those that come
    first do not have it. A question is passed on to them alone."""

    def __init__(self, name: str, own: OwnRoute, peers: Mapping[str, ResponseDirectory]) -> None:
        self._name = name
        self._own = own
        self._peers = peers

    async def ask(self, response_id: str, tenant: str | None, question: Question[Answer]) -> Answer:
        """Return an answer of this process. Raises as OwnRoute."""
        own = self._own
        if not own.local.has(response_id) and own.streams.can_make(response_id, tenant):
            # The one that asks may not reach them while they are there.
            with suppress(StreamElsewhereError, UnavailableError):
                return await first_answer(
                    response_id,
                    path_before(
                        response_id,
                        self._name,
                        self._peers,
                        own.streams.maker_name(response_id),
                    ),
                    lambda name: question(self._peers[name]),
                )
        return await own.ask(response_id, tenant, question)

    async def forget(self, response_id: str, tenant: str | None) -> None:
        """Forget a response that is here."""
        await self._own.forget(response_id, tenant)


class GroupRoute:
    """Over the whole group: to the process that made a response, and where that is gone to those
    that keep its recipe."""

    def __init__(
        self,
        membership: Membership,
        own: OwnRoute,
        peers: Mapping[str, ResponseDirectory],
        streams: StreamFinder,
    ) -> None:
        """Create the route of one process.

        Args:
            peers: Directories by name.
            streams: Knows the order in which members are asked, and forgets recipes.
        """
        self._own = own
        self._members: dict[str, ResponseDirectory] = {
            membership.name: RoutedResponses(own),
            **peers,
        }
        self._streams = streams

    async def ask(self, response_id: str, tenant: str | None, question: Question[Answer]) -> Answer:
        """Return the answer of the member that has a response.

        Raises:
            ResponseNotFoundError: None has it; the text says if the process that did is gone.
            StreamLostError: Its process is gone, and its tokens may differ when made again.
            UnavailableError: A peer that may have it does not answer.
        """
        if tag_of(response_id) is None:
            raise not_found(response_id)
        if self._own.local.has(response_id):
            return await question(self._own.local)
        try:
            return await first_answer(
                response_id,
                self._streams.path(response_id),
                lambda name: question(self._members[name]),
            )
        except StreamElsewhereError:
            raise gone(response_id) from None
        except StreamNotFoundError:
            raise not_found(response_id) from None
        except StreamLostError as error:
            error.field = "response_id"
            raise

    async def forget(self, response_id: str, tenant: str | None) -> None:
        """Forget a response wherever it is, and its recipes. Raises as `ask`."""
        missing: PagewireError | None = None
        try:
            await self.ask(response_id, tenant, lambda one: one.delete(response_id, tenant))
        except (ResponseNotFoundError, UnavailableError) as error:
            missing = error
        if not await self.forget_recipes(response_id, tenant) and missing is not None:
            raise missing

    async def forget_recipes(self, response_id: str, tenant: str | None) -> bool:
        """Forget the kept stream of a response and its recipes; return whether any were there."""
        if tag_of(response_id) is None:
            return False
        try:
            await self._streams.forget(response_id, tenant)
        except (StreamNotFoundError, UnavailableError):
            return False
        return True


class GroupDirectory:
    """The ResponseDirectory over the whole group; see GroupRoute."""

    def __init__(self, route: GroupRoute) -> None:
        self._route = route
        self._routed = routed = RoutedResponses(route)
        self.get, self.delete = routed.get, routed.delete
        self.input_items, self.conversation = routed.input_items, routed.conversation

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a response that still runs and return it; it is not made again."""
        body = await self._routed.cancel(response_id, tenant)
        if body["status"] == CANCELLED:
            await self._route.forget_recipes(response_id, tenant)
        return body

    async def events(self, response_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read the events from number `first` on; where their frontend is lost meanwhile,
        they go on elsewhere."""
        open_at = partial(self._routed.events, response_id, tenant)
        return await FollowedReading(open_at, first).begun()
