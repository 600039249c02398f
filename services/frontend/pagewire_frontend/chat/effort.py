"""Passes the effort of reasoning on to chat templates."""

from collections.abc import Mapping
from typing import Any, Final

from pagewire_frontend.message.formats import MessageFormats
from pagewire_shared.errors import InvalidRequestError

_EFFORT: Final = "reasoning_effort"
_SWITCH: Final = "enable_thinking"
_OF_HARMONY: Final = ("low", "medium", "high")


def effort_arguments(effort: str | None) -> Mapping[str, Any]:
    """Return values for a chat template; empty without an effort.

    The names are those of the templates that know such a thing: gpt-oss's, and Qwen's.
    """
    if effort is None:
        return {}
    return {_EFFORT: effort, _SWITCH: False} if effort == "none" else {_EFFORT: effort}


def check_effort(effort: str | None, formats: MessageFormats, field: str) -> None:
    """Raise InvalidRequestError, naming `field`, for an effort that harmony does not have: its
    template would write any word into the prompt."""
    if formats.harmony is not None and effort not in (None, *_OF_HARMONY):
        raise InvalidRequestError(
            f"{field}: the efforts of this model are {', '.join(_OF_HARMONY)}, got {effort!r}",
            field=field,
        )
