"""Passes the effort of reasoning on to chat templates, and finds out whether they read it."""

from collections.abc import Mapping
from typing import Any, Final

from pagewire_frontend.models.chat_template import ChatTemplate

_EFFORT: Final = "reasoning_effort"
_SWITCH: Final = "enable_thinking"


def effort_arguments(effort: str | None) -> Mapping[str, Any]:
    """Return values for a chat template; empty without an effort.

    The names are those of the templates that know such a thing: gpt-oss's, and Qwen's.
    """
    if effort is None:
        return {}
    return {_EFFORT: effort, _SWITCH: False} if effort == "none" else {_EFFORT: effort}


def is_effort_read(effort: str | None, template: ChatTemplate | None) -> bool:
    """Return whether the template makes something of the effort."""
    source = template.source if template is not None else ""
    return any(name in source for name in effort_arguments(effort))
