"""Whether a JSON value follows a schema: the keywords that the tests use, written from the text of
draft 2020-12. Knows nothing of grammars; a keyword that it does not know is an error."""

import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

Schema = Mapping[str, Any]

TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
}
IGNORED = {"$defs", "description", "x-guidance"}
"""They say nothing of a value."""


def same(one: Any, other: Any) -> bool:
    """Equality of JSON: true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def is_date(text: str) -> bool:
    """Return whether `text` is a date; 29 February is one in every year, as docs say."""
    if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is None:
        return False
    try:
        return bool(date.fromisoformat(f"2000{text[4:]}"))
    except ValueError:
        return False


def is_valid(value: Any, schema: Schema | bool, root: Schema | None = None) -> bool:
    """Return whether `value` follows `schema`; `$ref` is looked up in `root`."""
    if isinstance(schema, bool):
        return schema
    top = schema if root is None else root
    checks = {**KEYWORDS, **COMPOSED}
    return all(checks[name](value, schema, top) for name in schema if name not in IGNORED)


def _type(value: Any, schema: Schema, _: Schema) -> bool:
    kinds = schema["type"]
    return any(TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _items(value: Any, schema: Schema, root: Schema) -> bool:
    if not isinstance(value, list):
        return True
    first = schema.get("prefixItems", [])
    pairs = zip(value, first, strict=False)
    rest = schema.get("items", True)
    return all(is_valid(item, one, root) for item, one in pairs) and all(
        is_valid(item, rest, root) for item in value[len(first) :]
    )


def _properties(value: Any, schema: Schema, root: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(is_valid(item, known.get(name, rest), root) for name, item in value.items())


def _ref(value: Any, schema: Schema, root: Schema) -> bool:
    target: Any = root
    for part in schema["$ref"].removeprefix("#/").split("/"):
        target = target[part]
    return is_valid(value, target, root)


def _of(kind: type | tuple[type, ...], holds: Callable[[Any, Any], bool], name: str) -> Any:
    """A keyword that speaks of one kind of value only."""
    return lambda value, schema, _: (
        not isinstance(value, kind) or isinstance(value, bool) or holds(value, schema[name])
    )


KEYWORDS: dict[str, Callable[[Any, Schema, Schema], bool]] = {
    "type": _type,
    "enum": lambda value, schema, _: any(same(value, one) for one in schema["enum"]),
    "const": lambda value, schema, _: same(value, schema["const"]),
    "minimum": _of((int, float), lambda value, least: value >= least, "minimum"),
    "maximum": _of((int, float), lambda value, most: value <= most, "maximum"),
    "exclusiveMinimum": _of((int, float), lambda value, end: value > end, "exclusiveMinimum"),
    "minLength": _of(str, lambda value, least: len(value) >= least, "minLength"),
    "maxLength": _of(str, lambda value, most: len(value) <= most, "maxLength"),
    "pattern": _of(str, lambda value, text: re.search(text, value) is not None, "pattern"),
    "format": _of(str, lambda value, name: {"date": is_date}[name](value), "format"),
    "minItems": _of(list, lambda value, least: len(value) >= least, "minItems"),
    "maxItems": _of(list, lambda value, most: len(value) <= most, "maxItems"),
    "required": _of(dict, lambda value, names: set(names) <= set(value), "required"),
}
COMPOSED: dict[str, Callable[[Any, Schema, Schema], bool]] = {
    "items": _items,
    "prefixItems": _items,
    "properties": _properties,
    "additionalProperties": _properties,
    "$ref": _ref,
    "anyOf": lambda value, schema, root: any(is_valid(value, s, root) for s in schema["anyOf"]),
    "allOf": lambda value, schema, root: all(is_valid(value, s, root) for s in schema["allOf"]),
}
