"""Reads a tool call in JSON, also from its beginning alone. Its keys are name and arguments, or
parameters as in Llama's form."""

import json
import re
from collections.abc import Container
from typing import Any, Final, NoReturn

_NAME_FIRST: Final = re.compile(r'\{\s*"name"\s*:\s*"([^"\\]*)"')
_HEAD: Final = re.compile(
    r'\{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_FIRST_KEY: Final = re.compile(r'\{\s*"([^"\\]*)"')
_NO_KEY: Final = re.compile(r'\{\s*[^"\s]')
_KEYS: Final = ("name", "arguments", "parameters", "id", "type")


def head_of(text: str, names: Container[str]) -> tuple[str, int] | None:
    """Return the name in `text`, and where its arguments begin; None while they have not."""
    found = _HEAD.match(text)
    return (found[1], found.end()) if found is not None and found[1] in names else None


def is_other(text: str, names: Container[str]) -> bool:
    """Return whether `text`, the beginning of an object, can no longer become a call."""
    name, key = _NAME_FIRST.match(text), _FIRST_KEY.match(text)
    if name is not None:
        return name[1] not in names
    if key is not None:
        return key[1] not in _KEYS
    return _NO_KEY.match(text) is not None


def whole_call(text: str, names: Container[str]) -> tuple[str, str] | None:
    """Return name and arguments, as JSON text, of a whole object; None for an object that is not a
    call."""
    try:
        value: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    name = value.get("name")
    arguments = value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or name not in names:
        return None
    if isinstance(arguments, str):
        # Some models write arguments as JSON text, as OpenAI's API does.
        try:
            arguments = json.loads(arguments, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return None
    if arguments is None:
        arguments = {}
    return (name, json_text(arguments)) if isinstance(arguments, dict) else None


def json_text(value: Any) -> str:
    """Return JSON; halves of surrogate pairs, which no UTF-8 has, stay escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
