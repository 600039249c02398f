"""Languages for tests of structured outputs, each with its own check of what is in it."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "日本"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "$defs": {
        "leaf": {"type": "boolean"},
        "pair": {
            "type": "array",
            "prefixItems": [{"$ref": "#/$defs/leaf"}, {"type": "null"}],
            "items": False,
            "minItems": 2,
        },
    },
    "anyOf": [{"$ref": "#/$defs/pair"}, {"const": {"é": "😀"}}],
}
MOODS = ("yes", "yesterday", "no\n", 'say "no"', "back\\slash", "😀👍🏽", "日本語", "\x7f\x00")
ARITHMETIC = """
start: expr
expr: term (("+" | "-") term){0,3}
term: NUMBER | "(" NUMBER ")"
NUMBER: /[0-9]{1,3}/
"""
GREETING = 'root ::= greeting " " ("wörld" | "😀" | [a-c]{1,3}) "!"?\ngreeting ::= "hello" | "hi"'


@dataclass(frozen=True)
class Language:
    """What an output must look like, and whether a text does."""

    name: str
    params: StructuredOutputsParams
    accepts: Callable[[str], bool]


def is_person(text: str) -> bool:
    value = json.loads(text)
    return (
        set(value) == {"name", "age", "tags"}
        and isinstance(value["name"], str)
        and len(value["name"]) <= 8
        and type(value["age"]) is int
        and 0 <= value["age"] <= 150
        and len(value["tags"]) <= 3
        and all(tag in ("a", "b", "日本") for tag in value["tags"])
    )


def is_tree(text: str) -> bool:
    value = json.loads(text)
    return value == {"é": "😀"} or (
        isinstance(value, list) and len(value) == 2 and value[0] in (True, False) and not value[1]
    )


def is_short_list(text: str) -> bool:
    value = json.loads(text)
    return 1 <= len(value) <= 4 and all(re.fullmatch("[a-f]{2}-[0-9]", item) for item in value)


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


LANGUAGES = (
    Language("person", StructuredOutputsParams(json=PERSON), is_person),
    Language("tree", StructuredOutputsParams(json=TREE), is_tree),
    Language(
        "list",
        StructuredOutputsParams(
            json={
                "type": "array",
                "items": {"type": "string", "pattern": "^[a-f]{2}-[0-9]$"},
                "minItems": 1,
                "maxItems": 4,
            }
        ),
        is_short_list,
    ),
    Language(
        "enum",
        StructuredOutputsParams(json={"enum": ["Ω", "naïve", 1, None, "👩‍👩‍👧"]}),
        lambda text: json.loads(text) in ("Ω", "naïve", 1, None, "👩‍👩‍👧"),
    ),
    Language(
        "date",
        StructuredOutputsParams(json={"type": "string", "format": "date"}),
        lambda text: re.fullmatch(r"\d{4}-\d\d-\d\d", json.loads(text)) is not None,
    ),
    Language(
        "number",
        StructuredOutputsParams(json={"type": "integer", "minimum": -5, "maximum": 4321}),
        lambda text: -5 <= int(text) <= 4321,
    ),
    Language("choice", StructuredOutputsParams(choice=MOODS), lambda text: text in MOODS),
    Language(
        "regex",
        StructuredOutputsParams(regex=r"[A-Z]{2}[0-9]{1,4}(-[äöü]{2})?"),
        matches(r"[A-Z]{2}[0-9]{1,4}(-[äöü]{2})?"),
    ),
    Language(
        "lark",
        StructuredOutputsParams(grammar=ARITHMETIC),
        matches(r"([0-9]{1,3}|\([0-9]{1,3}\))([+-]([0-9]{1,3}|\([0-9]{1,3}\))){0,3}"),
    ),
    Language(
        "gbnf",
        StructuredOutputsParams(grammar=GREETING),
        matches("(hello|hi) (wörld|😀|[a-c]{1,3})!?"),
    ),
)
"""Every output of them has less than some 200 tokens."""
