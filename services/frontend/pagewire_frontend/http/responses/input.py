"""Converts the input of a body to items of a conversation, and gives ids to items without one."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from pagewire_frontend.http.body_fields import FIRST_ERROR, StrictBody
from pagewire_frontend.http.responses import ids, items
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.schemas import MAX_INPUT_ITEMS, unsupported
from pagewire_frontend.http.responses.shapes import Shapes
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.names.part_types import TEXT_PARTS, refused_part

_Id = Annotated[str, Field(min_length=1, max_length=256)] | None


class _Typed(StrictBody):
    # Chooses the class, and is checked there.
    type: str | None = None


class _Message(_Typed):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[dict[str, Any]], FIRST_ERROR]
    id: _Id = None


class _Part(_Typed):
    text: str


class _Refusal(_Typed):
    refusal: str


class _Call(_Typed):
    call_id: str
    name: str
    arguments: str
    id: _Id = None


class _CallOutput(_Typed):
    call_id: str
    output: str | Annotated[list[dict[str, Any]], FIRST_ERROR]
    id: _Id = None


class _Reasoning(_Typed):
    content: Annotated[list[_Part], FIRST_ERROR] | None = None
    summary: Annotated[list[_Part], FIRST_ERROR] | None = None
    id: _Id = None


def input_items(given: str | list[dict[str, Any]], shapes: Shapes) -> list[Item]:
    """Return the items of an input.

    Args:
        given: A text, or items.
        shapes: Notes the fields without effect, and gives ids.

    Raises:
        InvalidRequestError: Names input, and the place in the message.
    """
    if isinstance(given, str):
        return [items.input_message("user", given, shapes.id_of(None, ids.MESSAGE_PREFIX))]
    if not given:
        raise InvalidRequestError("input must not be empty", field="input")
    if len(given) > MAX_INPUT_ITEMS:
        raise InvalidRequestError(
            f"input takes at most {MAX_INPUT_ITEMS} items, got {len(given)}", field="input"
        )
    return [_item(shapes, f"input.{index}", item) for index, item in enumerate(given)]


def _item(shapes: Shapes, place: str, given: dict[str, Any]) -> Item:
    kind = given.get("type") or "message"
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise unsupported(f"{place}: an item of type {str(kind)[:64]!r}", "input")
    return read(shapes, place, given)


def _message(shapes: Shapes, place: str, given: dict[str, Any]) -> Item:
    body = shapes.read(_Message, place, given)
    text = _text(shapes, f"{place}.content", body.content)
    item_id = shapes.id_of(body.id, ids.MESSAGE_PREFIX)
    if body.role == "assistant":
        return items.output_message([items.text_part(text)], item_id)
    return items.input_message(body.role, text, item_id)


def _call(shapes: Shapes, place: str, given: dict[str, Any]) -> Item:
    body = shapes.read(_Call, place, given)
    item_id = shapes.id_of(body.id, ids.CALL_PREFIX)
    return items.function_call(body.call_id, body.name, body.arguments, item_id)


def _call_output(shapes: Shapes, place: str, given: dict[str, Any]) -> Item:
    body = shapes.read(_CallOutput, place, given)
    text = _text(shapes, f"{place}.output", body.output)
    item_id = shapes.id_of(body.id, ids.CALL_OUTPUT_PREFIX)
    return items.function_call_output(body.call_id, text, item_id)


def _reasoning(shapes: Shapes, place: str, given: dict[str, Any]) -> Item:
    body = shapes.read(_Reasoning, place, given)
    # Without content the summary has to do; encrypted reasoning is for other servers.
    parts = body.content or body.summary or []
    if body.content and body.summary:
        shapes.ignored.add("input.summary")
    text = "".join(part.text for part in parts) if parts else None
    return items.reasoning(text, shapes.id_of(body.id, ids.REASONING_PREFIX))


_READERS: dict[str, Callable[[Shapes, str, dict[str, Any]], Item]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _call_output,
    "reasoning": _reasoning,
}


def _text(shapes: Shapes, place: str, content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(shapes, f"{place}.{index}", part) for index, part in enumerate(content))


def _part(shapes: Shapes, place: str, given: dict[str, Any]) -> str:
    kind = given.get("type")
    if kind in TEXT_PARTS:
        return shapes.read(_Part, place, given).text
    if kind == "refusal":
        return shapes.read(_Refusal, place, given).refusal
    raise InvalidRequestError(
        f"{place}: {refused_part(str(kind))}", field="input", code="unsupported_parameter"
    )
