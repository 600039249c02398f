"""The tools of a request and their checks: the same for HTTP and gRPC."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.structured_outputs import FIELD, StructuredOutputsParams

MAX_TOOLS: Final = 128
MAX_NAME_CHARS: Final = 64

_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}")
_MODES: Final = ("none", "auto", "required")

ChoiceMode = Literal["none", "auto", "required"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call.

    Attributes:
        name: 1 to 64 of a-z, A-Z, 0-9, _ and -.
        description: Purpose of the function, for the model.
        parameters: A JSON schema of the arguments, an object; None for no arguments.
        strict: The arguments of every call follow the schema, also if the model chose the tool.
    """

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """The tools of a request and how they may be used.

    Attributes:
        tools: Tools that may be called.
        mode: none, auto (the model decides) or required (at least one call and nothing else).
        name: The tool that must be called; mode is required then.
        is_parallel: Whether a message may hold several calls.
    """

    tools: Sequence[Tool] = ()
    mode: ChoiceMode = "none"
    name: str | None = None
    is_parallel: bool = True


NO_TOOLS: Final = ToolUse()


def check_tool_use(use: ToolUse) -> None:
    """Raise InvalidRequestError naming tools or tool_choice when they are not well formed."""
    if len(use.tools) > MAX_TOOLS:
        raise _invalid_tools(f"at most {MAX_TOOLS} tools, got {len(use.tools)}")
    seen: set[str] = set()
    for index, tool in enumerate(use.tools):
        check_tool(tool, f"tools.{index}")
        if tool.name in seen:
            raise _invalid_tools(f"the name {tool.name!r} is given twice")
        seen.add(tool.name)
    if use.mode not in _MODES:
        raise _invalid_choice(f"{use.mode!r} is none of {', '.join(_MODES)}")
    if use.name is not None and use.name not in seen:
        raise _invalid_choice(f"no tool is called {use.name[:MAX_NAME_CHARS]!r}")
    if use.mode == "required" and not use.tools:
        raise _invalid_choice("required needs tools")


def check_tool(tool: Tool, where: str) -> None:
    """Raise InvalidRequestError naming tools when a tool is not well formed; `where` places it."""
    if not _NAME.fullmatch(tool.name):
        raise _invalid_tools(
            f"{where}: a name has 1 to {MAX_NAME_CHARS} of a-z, A-Z, 0-9, _ and -", prefix=False
        )
    if tool.parameters is None:
        return
    kind = tool.parameters.get("type", "object")
    if kind != "object":
        raise _invalid_tools(f"{where}: parameters must be of type object", prefix=False)
    try:
        StructuredOutputsParams(json=tool.parameters)
    except InvalidRequestError as error:
        problem = error.message.removeprefix(f"{FIELD}: json ")
        raise _invalid_tools(f"{where}: parameters {problem}", prefix=False) from error


def _invalid_tools(problem: str, *, prefix: bool = True) -> InvalidRequestError:
    return InvalidRequestError(f"tools: {problem}" if prefix else problem, field="tools")


def _invalid_choice(problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"tool_choice: {problem}", field="tool_choice")
