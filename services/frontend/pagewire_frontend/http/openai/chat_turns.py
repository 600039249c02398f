"""Converts the messages of a body to the turns that chat templates take."""

from collections.abc import Mapping, Sequence
from typing import Any

from pagewire_frontend.chat.turns import SaidCall, Turn, assistant_turn, text_turn, tool_turn
from pagewire_frontend.http.openai.schemas import ChatMessageBody, TextPart
from pagewire_frontend.models.content import Content, text_part
from pagewire_shared.errors import InvalidRequestError


def chat_turns(messages: Sequence[ChatMessageBody]) -> list[Mapping[str, Any]]:
    """Return the turns as templates take them. Raises InvalidRequestError naming messages."""
    return [_turn(f"messages.{index}", message) for index, message in enumerate(messages)]


def _turn(where: str, message: ChatMessageBody) -> Turn:
    for name in ("function_call", "audio"):
        if (message.model_extra or {}).get(name):
            raise _invalid(f"{where}: {name} is not supported", code="unsupported_parameter")
    if message.role == "assistant":
        return _assistant_turn(where, message)
    for name in ("tool_calls", "reasoning_content", "reasoning"):
        if getattr(message, name):
            raise _invalid(f"{where}: {name} is for the role assistant")
    if message.content is None:
        raise _invalid(f"{where}: content is required")
    content = _content(message.content)
    if message.role == "tool":
        if message.tool_call_id is None:
            raise _invalid(f"{where}: tool_call_id is required with the role tool")
        return tool_turn(content, message.tool_call_id, message.name)
    # Templates know system; developer is OpenAI's newer name for it.
    role = "system" if message.role == "developer" else message.role
    return text_turn(role, content, message.name)


def _assistant_turn(where: str, message: ChatMessageBody) -> Turn:
    calls = [
        SaidCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
    ]
    content = None if message.content is None else _content(message.content)
    thought = message.reasoning_content or message.reasoning
    turn = assistant_turn(content, calls, reasoning=thought, where=where)
    return turn if message.name is None else {**turn, "name": message.name}


def _content(given: str | Sequence[TextPart]) -> Content:
    return given if isinstance(given, str) else [text_part(part.text) for part in given]


def _invalid(problem: str, code: str = "invalid_value") -> InvalidRequestError:
    return InvalidRequestError(problem, field="messages", code=code)
