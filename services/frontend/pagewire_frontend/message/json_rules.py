"""Lark rules of calls with arguments in JSON, for llguidance (docs/syntax.md there: %json)."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pagewire_frontend.message.call_format import HeldTool
from pagewire_shared.sampling.schema_options import OPTIONS, is_compact

JSON_WHITESPACE: Final = r" ?|\n {0,20}"
"""White space of all JSON outputs: see pagewire_shared.sampling.grammar_source, whose import would
bring the compiler into this process."""


def object_rules(tools: Sequence[HeldTool], key: str) -> list[str]:
    """Return the rules of call_object: an object of name and `key`."""
    return [
        *argument_rules(
            tools,
            lambda name: json.dumps(f'{{"name": "{name}", "{key}": '),
            "call_head",
        ),
        'call_object: call_head "}"',
    ]


def argument_rules(tools: Sequence[HeldTool], before: Callable[[str], str], rule: str) -> list[str]:
    """Return the rules of `rule`: one of the tools, with its arguments behind the expression that
    `before` makes of its name."""
    ways = [f"{rule}_{index}" for index in range(len(tools))]
    bodies = [
        f"{way}: {before(tool.name)} {json_term(tool.schema)}"
        for way, tool in zip(ways, tools, strict=True)
    ]
    return [f"{rule}: {' | '.join(ways)}", *bodies]


def json_term(schema: Mapping[str, Any]) -> str:
    """Return the Lark term for JSON that `schema` allows."""
    given = schema.get(OPTIONS)
    options = given if isinstance(given, Mapping) else {}
    whitespace = "" if is_compact(schema) else JSON_WHITESPACE
    bounded = {**schema, OPTIONS: {**options, "whitespace_pattern": whitespace}}
    return f"%json {json.dumps(bounded)}"
