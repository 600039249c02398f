"""Errors of stored responses: an unknown id, or a process that is gone."""

from dataclasses import dataclass

from pagewire_frontend.http.responses.ids import tag_of
from pagewire_shared.errors import PagewireError


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
