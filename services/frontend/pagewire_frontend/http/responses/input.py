"""Converts the input of a body to items of a conversation, and gives ids to items without one."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError

from pagewire_frontend.http.body_fields import FIRST_ERROR, StrictBody
from pagewire_frontend.http.responses import items
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.schemas import MAX_INPUT_ITEMS, unsupported
from pagewire_shared.errors import InvalidRequestError

_Id = Annotated[str, Field(min_length=1, max_length=256)] | None


class _Message(StrictBody):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[dict[str, Any]], FIRST_ERROR]
    id: _Id = None


class _Part(StrictBody):
    text: str


class _Refusal(StrictBody):
    refusal: str


class _Call(StrictBody):
    call_id: str
    name: str
    arguments: str
    id: _Id = None


class _CallOutput(StrictBody):
    call_id: str
    output: str | Annotated[list[dict[str, Any]], FIRST_ERROR]
    id: _Id = None


class _Reasoning(StrictBody):
    content: Annotated[list[_Part], FIRST_ERROR] | None = None
    summary: Annotated[list[_Part], FIRST_ERROR] | None = None
    id: _Id = None


Shape = TypeVar("Shape", bound=BaseModel)


def input_items(given: str | list[dict[str, Any]]) -> list[Item]:
    """Return the items of an input.

    Raises:
        InvalidRequestError: Names input, and the place in the message.
    """
    if isinstance(given, str):
        return [items.input_message("user", given)]
    if not given:
        raise InvalidRequestError("input must not be empty", field="input")
    if len(given) > MAX_INPUT_ITEMS:
        raise InvalidRequestError(
            f"input takes at most {MAX_INPUT_ITEMS} items, got {len(given)}", field="input"
        )
    return [_item(f"input.{index}", item) for index, item in enumerate(given)]


def _item(place: str, given: dict[str, Any]) -> Item:
    kind = given.get("type", "message")
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None:
        raise unsupported(f"{place}: an item of type {str(kind)[:64]!r}", "input")
    return read(place, given)


def _message(place: str, given: dict[str, Any]) -> Item:
    body = _shaped(_Message, place, given)
    text = _text(f"{place}.content", body.content)
    if body.role == "assistant":
        return items.output_message([items.text_part(text)], body.id)
    return items.input_message(body.role, text, body.id)


def _call(place: str, given: dict[str, Any]) -> Item:
    body = _shaped(_Call, place, given)
    return items.function_call(body.call_id, body.name, body.arguments, body.id)


def _call_output(place: str, given: dict[str, Any]) -> Item:
    body = _shaped(_CallOutput, place, given)
    text = _text(f"{place}.output", body.output)
    return items.function_call_output(body.call_id, text, body.id)


def _reasoning(place: str, given: dict[str, Any]) -> Item:
    body = _shaped(_Reasoning, place, given)
    # Without content the summary has to do; encrypted reasoning is for other servers.
    parts = body.content or body.summary or []
    text = "".join(part.text for part in parts) if parts else None
    return items.reasoning(text, body.id)


_READERS: dict[str, Callable[[str, dict[str, Any]], Item]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _call_output,
    "reasoning": _reasoning,
}


def _text(place: str, content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(f"{place}.{index}", part) for index, part in enumerate(content))


def _part(place: str, given: dict[str, Any]) -> str:
    kind = given.get("type")
    if kind in ("input_text", "output_text", "text"):
        return _shaped(_Part, place, given).text
    if kind == "refusal":
        return _shaped(_Refusal, place, given).refusal
    raise unsupported(f"{place}: a part of type {str(kind)[:64]!r}", "input")


def _shaped(cls: type[Shape], place: str, given: dict[str, Any]) -> Shape:
    return shaped(cls, place, given, field="input")


def shaped(cls: type[Shape], place: str, given: dict[str, Any], *, field: str) -> Shape:
    """Return `given` as a strict model. Raises InvalidRequestError naming `field` and the place."""
    try:
        return cls.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join([place, *(str(part) for part in first["loc"])])
        raise InvalidRequestError(
            f"{where}: {first['msg']}", field=field, code="invalid_type"
        ) from error
