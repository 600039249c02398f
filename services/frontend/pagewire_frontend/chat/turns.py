"""Builds the turns of a conversation in the form that chat templates take, for HTTP and gRPC."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pagewire_frontend.models.content import Content
from pagewire_shared.errors import InvalidRequestError

Turn = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SaidCall:
    """A tool call that an assistant made in an earlier turn; `arguments` as JSON text."""

    call_id: str
    name: str
    arguments: str


def text_turn(role: str, content: Content, name: str | None = None) -> Turn:
    """Return a turn of plain text."""
    turn: Turn = {"role": role, "content": content}
    if name is not None:
        turn["name"] = name
    return turn


def assistant_turn(
    content: Content | None, calls: Sequence[SaidCall], *, reasoning: str | None = None, where: str
) -> Turn:
    """Return an assistant's turn; templates take arguments as an object, not as text.

    Raises:
        InvalidRequestError: Arguments are no JSON object; names messages, with `where` in the text.
    """
    turn = text_turn("assistant", content or "")
    if reasoning is not None:
        turn["reasoning_content"] = reasoning
    if calls:
        turn["tool_calls"] = [_call(call, where) for call in calls]
    return turn


def tool_turn(content: Content, call_id: str, name: str | None = None) -> Turn:
    """Return the result of a tool call."""
    return {**text_turn("tool", content, name), "tool_call_id": call_id}


def _call(call: SaidCall, where: str) -> Mapping[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(
            f"{where}: arguments of {call.name} are no JSON: {error}", field="messages"
        ) from error
    if not isinstance(arguments, dict):
        raise InvalidRequestError(
            f"{where}: arguments of {call.name} must be an object", field="messages"
        )
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.call_id, "type": "function", "function": function}
