"""Passes the effort of reasoning on to chat templates."""

from collections.abc import Mapping
from typing import Any, Final

_EFFORT: Final = "reasoning_effort"
_SWITCH: Final = "enable_thinking"


def effort_arguments(effort: str | None) -> Mapping[str, Any]:
    """Return values for a chat template; empty without an effort.

    The names are those of the templates that know such a thing: gpt-oss's, and Qwen's.
    """
    if effort is None:
        return {}
    return {_EFFORT: effort, _SWITCH: False} if effort == "none" else {_EFFORT: effort}
