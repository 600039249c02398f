"""The seam between the HTTP endpoints and wherever a response is: in this process, or in another
one of the group that its name tells."""

from collections.abc import AsyncIterator
from typing import Protocol

from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.pending_response import Body


class ResponseDirectory(Protocol):
    """Responses by name. A tenant sees its own and no other; `None` is a tenant, too.

    Every method raises ResponseNotFoundError for what is not kept or another tenant's.
    """

    async def get(self, response_id: str, tenant: str | None) -> Body:
        """Return the response object as it is now."""
        ...

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a background response and return it; one that has ended is returned as it is.

        Raises:
            InvalidRequestError: It is no background response.
        """
        ...

    async def delete(self, response_id: str, tenant: str | None) -> None:
        """Forget a response. One that has a client goes on for it; a background one ends."""
        ...

    async def input_items(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the whole conversation before the answer, oldest first."""
        ...

    async def conversation(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return what a next response builds on: the items before the answer, and the answer's.

        Raises:
            InvalidRequestError: The response has not ended; names previous_response_id.
        """
        ...

    async def events(
        self, response_id: str, tenant: str | None, first: int
    ) -> AsyncIterator[list[bytes]]:
        """Return the events of a background response from number `first` on, as they are sent.

        Raises:
            InvalidRequestError: Its events are not kept; names stream.
        """
        ...
