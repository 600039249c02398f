"""What a client says of tools, as plain data with the one place that checks it: the same for HTTP
and gRPC."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

MAX_TOOLS: Final = 128

ChoiceMode = Literal["none", "auto", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call.

    Attributes:
        name: 1 to 64 of a-z, A-Z, 0-9, _ and -.
        description: What it does, for the model.
        parameters: A JSON schema of the arguments, an object; None for no arguments.
        strict: The arguments of every call follow the schema, whoever chose the tool.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """The tools of a request and how they may be used.

    Attributes:
        tools: What may be called.
        mode: none, auto (the model decides) or required (at least one call and nothing else).
        name: The tool that must be called; mode is required then.
        is_parallel: Whether a message may hold several calls.
    """

    tools: Sequence[Tool] = ()
    mode: ChoiceMode = "none"
    name: str | None = None
    is_parallel: bool = True


NO_TOOLS: Final = ToolUse()
