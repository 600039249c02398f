"""Mints the ids of responses, which are those of their kept streams, and of their items. A
response's id holds the tag of the frontend process that made it, and nothing else."""

from dataclasses import dataclass
from typing import Final

from pagewire_frontend.http.kept_streams.ids import RESPONSE_KIND, mint_stream_id, tag_of_stream
from pagewire_frontend.http.kept_streams.pins import Pins
from pagewire_shared.errors import PagewireError

MESSAGE_PREFIX: Final = "msg"
REASONING_PREFIX: Final = "rs"
CALL_PREFIX: Final = "fc"
CALL_OUTPUT_PREFIX: Final = "fco"


def mint_response_id(tag: str) -> str:
    """Return the id of a new response of the process `tag`."""
    return mint_stream_id(RESPONSE_KIND, tag)


def tag_of(response_id: str) -> str | None:
    """Return the tag of the process that made a response; None for a malformed id."""
    is_response = response_id.startswith(f"{RESPONSE_KIND}_")
    return tag_of_stream(response_id) if is_response else None


class ItemIds:
    """The ids of items of one side of a response, its input or its output, in their order."""

    def __init__(self, pins: Pins, side: str) -> None:
        """Create it; the same pins give the same ids."""
        self._pins = pins
        self._side = side
        self._num_items = 0

    def next(self, prefix: str) -> str:
        """Return the id of the next item."""
        self._num_items += 1
        return self._pins.item_id(self._side, self._num_items, prefix)


@dataclass
class ResponseNotFoundError(PagewireError):
    """No response of that id is kept, or it is another tenant's."""

    field: str | None = "response_id"
    code: str = "response_not_found"
    status_name = "NOT_FOUND"
    __str__ = PagewireError.__str__


def not_found(response_id: str) -> ResponseNotFoundError:
    """Return the error for an id without a stored response."""
    if tag_of(response_id) is None:
        return ResponseNotFoundError(f"{_shown(response_id)} is no id of a response")
    return ResponseNotFoundError(
        f"the response {_shown(response_id)} is gone: it was deleted, not stored, or was dropped "
        "for newer ones"
    )


def gone(response_id: str) -> ResponseNotFoundError:
    """Return the error for an id of a process that ended, with all responses in its memory."""
    return ResponseNotFoundError(
        f"the response {_shown(response_id)} is gone with the frontend process that held it"
    )


def _shown(response_id: str) -> str:
    # The id comes from the client, so it is cut.
    return repr(response_id[:64])
