"""EngineArgs: the keywords of a model, to be handed on."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, init=False)
class EngineArgs:
    """Keywords as LLM takes them, vLLM's names included.

    Attributes:
        settings: The keywords.
    """

    settings: dict[str, Any] = field(default_factory=dict)

    def __init__(self, **settings: Any) -> None:
        object.__setattr__(self, "settings", settings)


AsyncEngineArgs = EngineArgs
"""vLLM's name for the arguments of AsyncLLM."""
