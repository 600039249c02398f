"""Turns what pydantic finds wrong with a body into one plain sentence that names the field."""

import re
from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError

from pagewire_shared.errors import InvalidRequestError

_LABEL = re.compile(r"[A-Z]\w*|str|int|float|bool|.*[\[(].*")
"""Names that pydantic gives to the members of a union, which are no part of a field's place."""
_WORDS: Final = {
    "bool_type": "must be true or false",
    "dict_type": "must be an object",
    "float_type": "must be a number",
    "int_type": "must be an integer",
    "list_type": "must be a list",
    "missing": "is required",
    "model_type": "must be an object",
    "string_type": "must be a string",
    "too_short": "must have at least one item",
}


def as_invalid(error: ValidationError, within: Sequence[str] = ()) -> InvalidRequestError:
    """Return the error of the first field that is wrong, in plain words.

    Args:
        error: What pydantic says.
        within: Where the checked object stands in the body, such as ["input", "0"].
    """
    found = error.errors(include_url=False, include_context=False, include_input=False)
    same = _of_one_field(found)
    inner = _place(max((one["loc"] for one in same), key=_depth))
    said = [_words(one) for one in same if _place(one["loc"]) == inner]
    place = [*within, *inner]
    shown = ".".join(place) or "the body"
    is_unsupported = found[0]["type"] == "unsupported"
    return InvalidRequestError(
        f"{shown}{':' if is_unsupported else ''} {_joined(said)}",
        field=place[0] if place else None,
        code="unsupported_parameter" if is_unsupported else "invalid_type",
    )


def _of_one_field(found: Sequence[Any]) -> list[Any]:
    """Return the errors of the field of the first: of all members, where it is a union."""
    root = found[0]["loc"]
    for index, part in enumerate(root):
        if isinstance(part, str) and _LABEL.fullmatch(part):
            root = root[:index]
            break
    return [one for one in found if one["loc"][: len(root)] == root]


def _depth(location: Sequence[str | int]) -> tuple[int, list[int]]:
    """Return how far the check of a member came: the farthest is what was meant."""
    return len(_place(location)), [part for part in location if isinstance(part, int)]


def _place(location: Sequence[str | int]) -> list[str]:
    return [str(part) for part in location if isinstance(part, int) or not _LABEL.fullmatch(part)]


def _words(one: Any) -> str:
    known = _WORDS.get(one["type"])
    if known is not None:
        return known
    text: str = one["msg"]
    text = text.replace("Input should be a valid ", "must be a ")
    return text.replace("Input should be ", "must be ")


def _joined(said: Sequence[str]) -> str:
    """Return what the members of a union want, as alternatives."""
    different = list(dict.fromkeys(said))
    first, *others = different
    alternatives = [text.removeprefix("must be ") for text in others if text.startswith("must be ")]
    return " or ".join([first, *alternatives]) if first.startswith("must be ") else first
