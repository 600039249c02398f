"""From what a body says of tools to plain data, whose checks are in message.tool_use."""

from collections.abc import Sequence

from pagewire_frontend.chat.tool_use import ChoiceMode, Tool, ToolUse
from pagewire_frontend.http.openai.schemas import ChatBody
from pagewire_frontend.http.openai.tool_schemas import NamedToolBody, ToolBody


def tool_use(body: ChatBody) -> ToolUse:
    """Return the tools of a chat body, unchecked; without a tool_choice the model decides."""
    tools = _tools(body.tools or ())
    choice = body.tool_choice
    is_parallel = body.parallel_tool_calls is not False
    if isinstance(choice, NamedToolBody):
        name = choice.function.name
        return ToolUse(tools=tools, mode="required", name=name, is_parallel=is_parallel)
    mode: ChoiceMode = choice or ("auto" if tools else "none")
    return ToolUse(tools=tools, mode=mode, is_parallel=is_parallel)


def _tools(bodies: Sequence[ToolBody]) -> list[Tool]:
    functions = [body.function for body in bodies]
    return [
        Tool(
            name=function.name,
            description=function.description,
            parameters=function.parameters,
            strict=bool(function.strict),
        )
        for function in functions
    ]
