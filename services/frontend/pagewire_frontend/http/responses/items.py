"""Items of conversations as they are stored and shown, and their conversion to turns for chat
templates.

The shapes are those of `ResponseItem` and `OutputItem` in OpenAI's published API description.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pagewire_frontend.chat.turns import SaidCall, Turn, assistant_turn, text_turn, tool_turn

Item = dict[str, Any]


def text_part(text: str) -> Item:
    """Return a part of a message of the model."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def input_message(role: str, text: str, item_id: str) -> Item:
    """Return a message to the model."""
    return {
        "type": "message",
        "id": item_id,
        "role": role,
        "status": "completed",
        "content": [{"type": "input_text", "text": text}],
    }


def output_message(parts: Sequence[Item], item_id: str, *, status: str = "completed") -> Item:
    """Return a message of the model."""
    return {
        "type": "message",
        "id": item_id,
        "role": "assistant",
        "status": status,
        "content": list(parts),
    }


def function_call(
    call_id: str,
    name: str,
    arguments: str,
    item_id: str,
    *,
    status: str = "completed",
) -> Item:
    """Return a call that the model made; `arguments` as JSON text."""
    return {
        "type": "function_call",
        "id": item_id,
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def function_call_output(call_id: str, output: str, item_id: str) -> Item:
    """Return the result of a call."""
    return {
        "type": "function_call_output",
        "id": item_id,
        "call_id": call_id,
        "output": output,
        "status": "completed",
    }


def reasoning(text: str | None, item_id: str, *, status: str = "completed") -> Item:
    """Return reasoning of the model; None for no text at all."""
    parts = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {
        "type": "reasoning",
        "id": item_id,
        "summary": [],
        "content": parts,
        "status": status,
    }


def is_whole(item: Item) -> bool:
    """Return whether a later turn may build on `item`: not on half a call."""
    return bool(item["type"] != "function_call" or item["status"] == "completed")


def turns(conversation: Iterable[Item], instructions: str | None = None) -> list[Turn]:
    """Return the turns of a conversation for chat templates, after the instructions.

    Raises:
        InvalidRequestError: The arguments of a call are no JSON object.
    """
    found: list[Turn] = []
    if instructions is not None:
        found.append(text_turn("system", instructions))
    said = _Said()
    names: dict[str, str] = {}
    for index, item in enumerate(conversation):
        if not said.takes(item):
            found += said.turns()
            said = _Said()
        if item["type"] == "function_call":
            names[item["call_id"]] = item["name"]
        if _is_said(item):
            said.add(item, index)
        elif item["type"] == "function_call_output":
            call_id = item["call_id"]
            found.append(tool_turn(item["output"], call_id, names.get(call_id)))
        else:
            # Templates know system; developer is OpenAI's newer name for it.
            role = "system" if item["role"] == "developer" else item["role"]
            found.append(text_turn(role, _text(item)))
    return found + said.turns()


def _is_said(item: Item) -> bool:
    return item["type"] in ("reasoning", "function_call") or item.get("role") == "assistant"


def _text(item: Item) -> str:
    return "".join(part["text"] for part in item["content"])


@dataclass(slots=True)
class _Said:
    """One turn of the assistant, which is several items: reasoning, a message, then calls."""

    reasoning: str | None = None
    text: str | None = None
    calls: list[SaidCall] = field(default_factory=list)
    index: int = 0

    def takes(self, item: Item) -> bool:
        """Return whether `item` still belongs to this turn."""
        if not _is_said(item):
            return False
        return item["type"] == "function_call" or (self.text is None and not self.calls)

    def add(self, item: Item, index: int) -> None:
        """Take an item; `index` is its place in the conversation."""
        self.index = index
        if item["type"] == "function_call":
            self.calls.append(SaidCall(item["call_id"], item["name"], item["arguments"]))
        elif item["type"] == "reasoning":
            text = _text(item)
            self.reasoning = text if self.reasoning is None else f"{self.reasoning}{text}"
        else:
            self.text = _text(item)

    def turns(self) -> list[Turn]:
        """Return the turn, if there is one."""
        if self.text is None and self.reasoning is None and not self.calls:
            return []
        where = f"input.{self.index}"
        thought = self.reasoning or None
        return [assistant_turn(self.text, self.calls, reasoning=thought, where=where)]
