"""Converts turns and tools of the public gRPC messages to plain data. Checks constraints that the
wire types cannot express; `chat.tool_use` checks tools, for HTTP as well."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from pagewire_frontend.chat.tool_use import ChoiceMode, Tool, ToolUse
from pagewire_frontend.chat.turns import SaidCall, Turn, assistant_turn, text_turn, tool_turn
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import tools_pb2
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.structured_outputs import MAX_SCHEMA_BYTES

_ROLES = {
    pb.CHAT_ROLE_SYSTEM: "system",
    pb.CHAT_ROLE_USER: "user",
    pb.CHAT_ROLE_ASSISTANT: "assistant",
    pb.CHAT_ROLE_TOOL: "tool",
}
_MODES: dict[int, ChoiceMode] = {
    tools_pb2.TOOL_MODE_NONE: "none",
    tools_pb2.TOOL_MODE_AUTO: "auto",
    tools_pb2.TOOL_MODE_REQUIRED: "required",
}


def chat_turns(messages: Sequence[pb.ChatMessage]) -> list[Turn]:
    """Return the turns as templates take them. Raises InvalidRequestError naming messages."""
    if not messages:
        raise InvalidRequestError("messages must not be empty", field="messages")
    return [_turn(f"messages.{index}", message) for index, message in enumerate(messages)]


def tool_use(message: pb.ChatRequest) -> ToolUse:
    """Return the tools of a request. Raises InvalidRequestError naming the field."""
    parallel = message.parallel_tool_calls if message.HasField("parallel_tool_calls") else True
    named = message.tool_name if message.HasField("tool_name") else None
    return ToolUse(
        tools=tools_of(message.tools),
        mode="required" if named is not None else _mode(message),
        name=named,
        is_parallel=parallel,
    )


def tools_of(messages: Sequence[tools_pb2.Tool]) -> tuple[Tool, ...]:
    """Return tools as plain data. Raises InvalidRequestError naming tools."""
    return tuple(_tool(f"tools.{index}", message) for index, message in enumerate(messages))


def _mode(message: pb.ChatRequest) -> ChoiceMode:
    if not message.HasField("tool_mode"):
        return "auto" if message.tools else "none"
    if message.tool_mode not in _MODES:
        raise InvalidRequestError(
            f"tool_choice has no mode {message.tool_mode}", field="tool_choice"
        )
    return _MODES[message.tool_mode]


def _tool(where: str, message: tools_pb2.Tool) -> Tool:
    return Tool(
        name=message.name,
        description=message.description if message.HasField("description") else None,
        parameters=_schema(where, message.parameters) if message.HasField("parameters") else None,
        strict=message.is_strict,
    )


def _schema(where: str, text: str) -> Mapping[str, Any]:
    if len(text.encode()) > MAX_SCHEMA_BYTES:
        raise InvalidRequestError(
            f"{where}: parameters take at most {MAX_SCHEMA_BYTES} bytes", field="tools"
        )
    try:
        schema = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"{where}: parameters are no JSON: {error}", field="tools"
        ) from error
    if not isinstance(schema, dict):
        raise InvalidRequestError(f"{where}: parameters must be an object", field="tools")
    return schema


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _turn(where: str, message: pb.ChatMessage) -> Turn:
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequestError(f"{where}: no role {message.role}", field="messages")
    _check_belongs(where, message, role)
    name = message.name if message.HasField("name") else None
    if role == "assistant":
        turn = assistant_turn(
            message.content,
            [_said_call(where, call) for call in message.tool_calls],
            reasoning=message.reasoning if message.HasField("reasoning") else None,
            where=where,
        )
        return turn if name is None else {**turn, "name": name}
    if message.HasField("tool_call_id"):
        return tool_turn(message.content, message.tool_call_id, name)
    return text_turn(role, message.content, name)


def _check_belongs(where: str, message: pb.ChatMessage, role: str) -> None:
    """Refuse fields in a turn of the wrong role."""
    said = {
        "tool_calls": (bool(message.tool_calls), "assistant"),
        "reasoning": (message.HasField("reasoning"), "assistant"),
        "tool_call_id": (message.HasField("tool_call_id"), "tool"),
    }
    for field, (is_said, owner) in said.items():
        if is_said and role != owner:
            raise InvalidRequestError(
                f"{where}: {field} belongs into a turn of role {owner}", field="messages"
            )


def _said_call(where: str, call: tools_pb2.ToolCall) -> SaidCall:
    if not call.name:
        raise InvalidRequestError(f"{where}: a tool call has no name", field="messages")
    return SaidCall(call.id, call.name, call.arguments)
