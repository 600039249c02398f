"""Mints the ids of responses and of their items. A response's id holds the tag of the frontend
process that made it, and nothing else."""

import os
import re
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import PagewireError

_RESPONSE_ID = re.compile(r"resp_([0-9a-f]{8})_[0-9a-f]{32}")

MESSAGE_PREFIX: Final = "msg"
REASONING_PREFIX: Final = "rs"
CALL_PREFIX: Final = "fc"
CALL_OUTPUT_PREFIX: Final = "fco"


def mint_response_id(tag: str) -> str:
    """Return the id of a new response of the process `tag`."""
    return f"resp_{tag}_{os.urandom(16).hex()}"


def tag_of(response_id: str) -> str | None:
    """Return the tag of the process that made a response; None for a malformed id."""
    match = _RESPONSE_ID.fullmatch(response_id)
    return match[1] if match else None


def mint_item_id(prefix: str) -> str:
    """Return the id of a new item."""
    return f"{prefix}_{os.urandom(16).hex()}"


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
