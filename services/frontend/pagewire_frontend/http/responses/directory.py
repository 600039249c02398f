"""The interface to stored responses, between the HTTP endpoints and the process that holds a
response: this one, or another of the group."""

from typing import Protocol

from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.pending_response import Body


class ResponseDirectory(Protocol):
    """Responses by id. A tenant sees its own and no other; `None` is a tenant, too.

    Every method raises ResponseNotFoundError for a response that is not kept or another tenant's.
    """

    async def get(self, response_id: str, tenant: str | None) -> Body:
        """Return the response object as it is now."""
        ...

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a background response and return it; a response that has ended is returned unchanged.

        Raises:
            InvalidRequestError: The response is not in the background.
        """
        ...

    async def delete(self, response_id: str, tenant: str | None) -> None:
        """Forget a response. One that goes on without a client ends; one with a client goes on for
        it."""
        ...

    async def input_items(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the whole conversation before the answer, oldest first."""
        ...

    async def conversation(self, response_id: str, tenant: str | None) -> list[Item]:
        """Return the items that a next response builds on: before the answer, and the answer's.

        Raises:
            InvalidRequestError: The response has not ended; names previous_response_id.
        """
        ...

    async def events(self, response_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read the events of a response that goes on without its client, from number
        `first` on.

        Raises:
            InvalidRequestError: Its events are not kept; names stream.
        """
        ...


class HeldResponses(ResponseDirectory, Protocol):
    """The responses of one process."""

    def has(self, response_id: str) -> bool:
        """Whether a response is here, or can only be here."""
        ...
