"""Twenty languages whose every text is short, so that a model that knows nothing still comes to an
end in each of them. Each has a check of its own."""

import json
from collections.abc import Callable
from typing import Any

from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from support.oracles.grammars import LANGUAGES, MOODS, PERSON, TREE, Language, matches
from support.oracles.json_schema import is_valid

MAX_TOKENS = 300
"""More than the longest text of any of them has bytes, but for texts with much white space."""

CLOSED = {"additionalProperties": False}
SHORT = {"type": "string", "maxLength": 6}

SCHEMAS: dict[str, dict[str, Any]] = {
    "person": PERSON,
    "tree": TREE,
    "enum": {"enum": ["Ω", "naïve", 1, None, "👩‍👩‍👧", True]},
    "integer": {"type": "integer", "minimum": -5, "maximum": 4321},
    "date": {"type": "string", "format": "date"},
    "patterns": {
        "type": "array",
        "items": {"type": "string", "pattern": "^[a-f]{2}-[0-9]$"},
        "minItems": 1,
        "maxItems": 4,
    },
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "boolean"}, "b": SHORT, "c": {"type": "null"}},
        "required": ["b"],
        **CLOSED,
    },
    "nested": {
        "type": "object",
        "properties": {
            "outer": {
                "type": "object",
                "properties": {"inner": {"type": "array", "items": SHORT, "maxItems": 2}},
                "required": ["inner"],
                **CLOSED,
            }
        },
        "required": ["outer"],
        **CLOSED,
    },
    "any-of": {
        "anyOf": [
            {"type": "string", "minLength": 2, "maxLength": 4},
            {"type": "integer", "exclusiveMinimum": 6, "maximum": 12},
            {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2},
        ]
    },
    "pair": {
        "type": "array",
        "prefixItems": [{"type": ["string", "null"], "maxLength": 3}, {"enum": ["ja", "nein"]}],
        "items": False,
        "minItems": 2,
    },
    "event": {
        "type": "object",
        "properties": {
            "kind": {"const": "größe"},
            "on": {"type": "string", "format": "date"},
            "level": {"type": "integer", "minimum": 1, "maximum": 5},
        },
        "required": ["kind", "on", "level"],
        **CLOSED,
    },
}

REGEXES = {
    "plate": r"[A-Z]{2}[0-9]{1,4}(-[äöü]{2})?",
    "version": r"v(0|[1-9][0-9]{0,2})\.[0-9]{1,2}(-(alpha|beta))?",
    "cjk": r"[一-龥]{2,5}(、[一-龥]{1,2}){0,3}。",
}

CALL = """
start: NAME "(" arguments ")"
arguments: (VALUE ("," VALUE){0,3})?
NAME: "max" | "min" | "abs"
VALUE: /-?[0-9]{1,3}/
"""
MATCHING = """
root ::= "[" level "]" | "()"
level ::= "<" leaf ">" | leaf
leaf ::= [a-z] [a-z]? | "π" | level2
level2 ::= "{" [0-9] "}"
"""
CITIES = ("Zürich", "Zürich West", "東京", "東京都", "São Paulo", "🏙️", "Łódź", "Łó")


def by_schema(schema: dict[str, Any]) -> Callable[[str], bool]:
    return lambda text: is_valid(json.loads(text), schema)


def _languages() -> tuple[Language, ...]:
    made = [
        Language(name, StructuredOutputsParams(json=schema), by_schema(schema))
        for name, schema in SCHEMAS.items()
    ]
    made += [
        Language(name, StructuredOutputsParams(regex=regex), matches(regex))
        for name, regex in REGEXES.items()
    ]
    made += [one for one in LANGUAGES if one.name in ("lark", "gbnf")]
    call = r"(max|min|abs)\((-?[0-9]{1,3}(,-?[0-9]{1,3}){0,3})?\)"
    made.append(Language("call", StructuredOutputsParams(grammar=CALL), matches(call)))
    leaf = r"([a-z]{1,2}|π|\{[0-9]\})"
    matching = rf"\(\)|\[({leaf}|<{leaf}>)\]"
    made.append(Language("matching", StructuredOutputsParams(grammar=MATCHING), matches(matching)))
    for name, texts in (("moods", MOODS), ("cities", CITIES)):
        choice = StructuredOutputsParams(choice=texts)
        made.append(Language(name, choice, lambda text, texts=texts: text in texts))
    return tuple(made)


BOUNDED_LANGUAGES = _languages()


def accepts(language: Language, text: str) -> bool:
    """Return whether `text` is in `language`; what is no JSON at all is not."""
    try:
        return language.accepts(text)
    except json.JSONDecodeError:
        return False


def json_object_is_valid(text: str) -> bool:
    """Return whether `text` is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except json.JSONDecodeError:
        return False


assert len(BOUNDED_LANGUAGES) == 20
