"""What can go wrong with a response besides its generation."""

from dataclasses import dataclass

from pagewire_frontend.responses.ids import tag_of
from pagewire_shared.errors import PagewireError


@dataclass
class ResponseNotFoundError(PagewireError):
    """No response of that name is kept, or it is another tenant's."""

    field: str | None = "response_id"
    code: str = "response_not_found"
    status_name = "NOT_FOUND"
    __str__ = PagewireError.__str__


def not_found(response_id: str, own_tag: str) -> ResponseNotFoundError:
    """Return the error that says why `response_id` is not to be had here."""
    tag = tag_of(response_id)
    # The name comes from the client: what is shown of it is bounded.
    shown = repr(response_id[:64])
    if tag is None:
        return ResponseNotFoundError(f"{shown} is no id of a response")
    if tag != own_tag:
        return ResponseNotFoundError(
            f"the response {shown} is not known: it was made by another process, or by one that "
            "has ended since"
        )
    return ResponseNotFoundError(
        f"the response {shown} is gone: it was deleted, not stored, or was dropped for newer ones"
    )
