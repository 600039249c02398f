"""What can go wrong with a response besides its generation."""

from dataclasses import dataclass

from pagewire_frontend.http.responses.ids import tag_of
from pagewire_shared.errors import PagewireError


@dataclass
class ResponseNotFoundError(PagewireError):
    """No response of that name is kept, or it is another tenant's."""

    field: str | None = "response_id"
    code: str = "response_not_found"
    status_name = "NOT_FOUND"
    __str__ = PagewireError.__str__


def not_found(response_id: str) -> ResponseNotFoundError:
    """Return the error for an id that nothing is kept under."""
    if tag_of(response_id) is None:
        return ResponseNotFoundError(f"{_shown(response_id)} is no id of a response")
    return ResponseNotFoundError(
        f"the response {_shown(response_id)} is gone: it was deleted, not stored, or was dropped "
        "for newer ones"
    )


def gone(response_id: str) -> ResponseNotFoundError:
    """Return the error for an id of a process that is no more, with all it held in memory."""
    return ResponseNotFoundError(
        f"the response {_shown(response_id)} is gone with the frontend process that held it"
    )


def _shown(response_id: str) -> str:
    # It comes from the client: what is shown of it is bounded.
    return repr(response_id[:64])
