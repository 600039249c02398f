"""What becomes of each field of the objects inside the body of Responses.

Objects of other types are refused by their type.
"""

from dataclasses import dataclass
from typing import Any, Final

Json = dict[str, Any]

_FUNCTION: Final = {"type": "function", "name": "look"}
_CALL: Final = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
_RESULT: Final = {"type": "function_call_output", "call_id": "c", "output": "x"}
_HI: Final = {"type": "message", "role": "user", "content": "hi"}


@dataclass(frozen=True)
class Kind:
    """An object that is read.

    Attributes:
        body: Fields of a body around the object; None stands for the object.
        needed: The object with what it needs.
        read: Fields that are read, besides those that it needs, with a value each.
        ignored: Fields without effect, with a value each.
    """

    body: Json
    needed: Json
    read: Json
    ignored: Json

    def around(self, given: Json) -> Json:
        """Return the body around an object."""
        return {name: filled(value, given) for name, value in self.body.items()}


def filled(value: Any, given: Json) -> Any:
    """Return a value with an object in the place of None."""
    if isinstance(value, list):
        return [filled(item, given) for item in value]
    if isinstance(value, dict):
        return {name: filled(item, given) for name, item in value.items()}
    return given if value is None else value


def _part(role: str) -> Json:
    return {"input": [{"role": role, "content": [None]}, _HI]}


_REASONING: Final = {"type": "reasoning", "summary": []}
_BREAKPOINT: Final = {"prompt_cache_breakpoint": {"mode": "explicit"}}
_OUTPUT_TEXT: Final = {"annotations": [{"type": "file_path"}], "logprobs": [{"token": "a"}]}

KINDS: Final[dict[str, dict[str, Kind]]] = {
    "input": {
        "message": Kind(
            {"input": [None]}, _HI, {"id": "msg_1"}, {"status": "completed", "phase": "commentary"}
        ),
        "function_call": Kind(
            {"input": [_HI, None, _RESULT]},
            _CALL,
            {"id": "fc_1"},
            {
                "status": "completed",
                "namespace": "n",
                "async": True,
                "caller": {"type": "direct"},
            },
        ),
        "function_call_output": Kind(
            {"input": [_HI, _CALL, None]},
            _RESULT,
            {"id": "fco_1"},
            {"status": "completed", "namespace": "n", "name": "look", "caller": {"type": "direct"}},
        ),
        "reasoning": Kind(
            {"input": [_HI, None, _CALL, _RESULT]},
            _REASONING,
            {"id": "rs_1", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"status": "completed", "encrypted_content": "gAAA"},
        ),
    },
    "input.message.content": {
        "input_text": Kind(_part("user"), {"type": "input_text", "text": "hi"}, {}, _BREAKPOINT),
        "output_text": Kind(
            _part("assistant"), {"type": "output_text", "text": "ho"}, {}, _OUTPUT_TEXT
        ),
        "refusal": Kind(_part("assistant"), {"type": "refusal", "refusal": "no"}, {}, {}),
    },
    "input.function_call_output.output": {
        "input_text": Kind(
            {"input": [_HI, _CALL, {**_RESULT, "output": [None]}]},
            {"type": "input_text", "text": "hi"},
            {},
            _BREAKPOINT,
        ),
    },
    "input.reasoning.content": {
        "reasoning_text": Kind(
            {"input": [_HI, {**_REASONING, "content": [None]}, _CALL, _RESULT]},
            {"type": "reasoning_text", "text": "hm"},
            {},
            {},
        ),
    },
    "input.reasoning.summary": {
        "summary_text": Kind(
            {"input": [_HI, {**_REASONING, "summary": [None]}, _CALL, _RESULT]},
            {"type": "summary_text", "text": "hm"},
            {},
            {},
        ),
    },
    "tools": {
        "function": Kind(
            {"input": "hi", "tools": [None]},
            _FUNCTION,
            {"description": "Looks", "parameters": {"type": "object"}, "strict": True},
            {
                "allowed_callers": ["direct"],
                "async": True,
                "defer_loading": True,
                "output_schema": {"type": "object"},
            },
        ),
    },
    "tool_choice": {
        "function": Kind(
            {"input": "hi", "tools": [_FUNCTION], "tool_choice": None}, _FUNCTION, {}, {}
        ),
        "allowed_tools": Kind(
            {"input": "hi", "tools": [_FUNCTION], "tool_choice": None},
            {"type": "allowed_tools", "mode": "auto", "tools": [_FUNCTION]},
            {},
            {},
        ),
    },
}
"""By place in the body and type; places of items that are refused are not here."""

REFUSED: Final[dict[str, Json]] = {
    "input": {"input": [None]},
    "tools": {"input": "hi", "tools": [None]},
    "tool_choice": {"input": "hi", "tools": [_FUNCTION], "tool_choice": None},
    "input.message.content": _part("user"),
    "input.function_call_output.output": {"input": [_HI, _CALL, {**_RESULT, "output": [None]}]},
}
"""Bodies around objects of other types."""
