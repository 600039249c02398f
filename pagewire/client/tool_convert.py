"""Converts tools and calls between OpenAI's form, records and messages of pagewire.frontend.v1.

Values that the wire cannot carry are refused here; the server checks the tools themselves.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from pagewire.client.events import ToolCall, ToolCallDelta
from pagewire_protos.frontend.v1 import inference_pb2, tools_pb2
from pagewire_shared.errors import InvalidRequestError

ToolChoice = Literal["none", "auto", "required"] | Mapping[str, Any]
"""Whether the model calls tools, or which: {"type": "function", "function": {"name": ...}}."""

_MODES = {
    "none": tools_pb2.TOOL_MODE_NONE,
    "auto": tools_pb2.TOOL_MODE_AUTO,
    "required": tools_pb2.TOOL_MODE_REQUIRED,
}


def add_tools(
    request: inference_pb2.ChatRequest,
    tools: Sequence[Mapping[str, Any]] | None,
    tool_choice: ToolChoice | None,
    parallel_tool_calls: bool | None,
) -> None:
    """Write tools and their options into a request. Raises InvalidRequestError with the field."""
    request.tools.extend(_tool_message(index, tool) for index, tool in enumerate(tools or ()))
    if isinstance(tool_choice, str):
        if tool_choice not in _MODES:
            raise InvalidRequestError(
                f"tool_choice: {tool_choice!r} is none of {', '.join(_MODES)}", field="tool_choice"
            )
        request.tool_mode = _MODES[tool_choice]
    elif tool_choice is not None:
        match tool_choice:
            case {"function": {"name": str(name)}}:
                request.tool_name = name
            case _:
                raise InvalidRequestError("tool_choice names no function", field="tool_choice")
    if parallel_tool_calls is not None:
        request.parallel_tool_calls = parallel_tool_calls


def call_messages(calls: Sequence[ToolCall | Mapping[str, Any]]) -> list[tools_pb2.ToolCall]:
    """Return the wire form of calls in the form of ToolCall or of OpenAI's mappings."""
    if not isinstance(calls, Sequence) or isinstance(calls, str):
        raise InvalidRequestError("messages: tool_calls must be a list", field="messages")
    return [_call_message(call) for call in calls]


def call_deltas(deltas: Iterable[tools_pb2.ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Return the pieces of calls in a message."""
    return tuple(
        ToolCallDelta(
            delta.index,
            delta.arguments,
            delta.id if delta.HasField("id") else None,
            delta.name if delta.HasField("name") else None,
        )
        for delta in deltas
    )


def joined_calls(deltas: Iterable[ToolCallDelta]) -> list[ToolCall]:
    """Return whole calls from all their pieces."""
    calls: dict[int, ToolCall] = {}
    for delta in deltas:
        old = calls.get(delta.index, ToolCall("", "", ""))
        calls[delta.index] = ToolCall(
            delta.id or old.id, delta.name or old.name, old.arguments + delta.arguments
        )
    return [calls[index] for index in sorted(calls)]


def _tool_message(index: int, tool: Mapping[str, Any]) -> tools_pb2.Tool:
    match tool:
        case {"function": {"name": str(name), **about}}:
            pass
        case _:
            _refuse(index, 'is not {"type": "function", "function": {"name": ...}}')
    description, strict = about.get("description"), about.get("strict")
    if not isinstance(description, str | None):
        _refuse(index, "has a description that is no text")
    if not isinstance(strict, bool | None):
        _refuse(index, "has a strict that is neither true nor false")
    message = tools_pb2.Tool(
        name=name,
        description=description,
        parameters=_schema_text(index, about.get("parameters")),
    )
    if strict is not None:
        message.is_strict = strict
    return message


def _schema_text(index: int, schema: Any) -> str | None:
    if schema is None:
        return None
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        _refuse(index, f"has parameters that are no JSON ({error})")


def _refuse(index: int, why: str) -> NoReturn:
    raise InvalidRequestError(f"tools: tool {index} {why}", field="tools")


def _call_message(call: ToolCall | Mapping[str, Any]) -> tools_pb2.ToolCall:
    if isinstance(call, ToolCall):
        return tools_pb2.ToolCall(id=call.id, name=call.name, arguments=call.arguments)
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return tools_pb2.ToolCall(id=call_id, name=name, arguments=arguments)
    raise InvalidRequestError(
        'messages: a tool call is {"id": ..., "type": "function", "function": {"name": ..., '
        '"arguments": a text}}',
        field="messages",
    )
