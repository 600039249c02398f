"""Lark rules of calls with keyword arguments, each held to its own schema."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pagewire_frontend.message.call_format import HeldTool
from pagewire_frontend.message.json_rules import json_term
from pagewire_shared.errors import InvalidRequestError

_UNDERSTOOD: Final = frozenset(
    {
        "$defs",
        "$schema",
        "additionalProperties",
        "definitions",
        "description",
        "properties",
        "required",
        "title",
        "type",
        "x-guidance",
    }
)


def keyword_rules(tools: Sequence[HeldTool], rule: str) -> list[str]:
    """Return the rules of `rule`: a call of one of the tools. Raises InvalidRequestError naming
    tools."""
    ways = [f"{rule}_{index}" for index in range(len(tools))]
    rules = [f"{rule}: {' | '.join(ways)}"]
    for way, tool in zip(ways, tools, strict=True):
        rules += _tool_rules(way, tool)
    return rules


def _tool_rules(way: str, tool: HeldTool) -> list[str]:
    """Return the rules of one tool: properties in order, optional ones left out at will.

    Rule `way`_first_i covers the arguments from property i on when none was written before it,
    `way`_more_i the same with a comma.
    """
    values = _properties(tool)
    required = tool.schema.get("required", [])
    rules = [f'{way}: "{tool.name}(" {way}_first_0 ")"']
    for index, (key, value) in enumerate(values):
        given = f'"{key}=" {way}_value_{index} {way}_more_{index + 1}'
        ways_first, ways_more = [given], [f'", " {given}']
        if key not in required:
            ways_first.append(f"{way}_first_{index + 1}")
            ways_more.append(f"{way}_more_{index + 1}")
        rules.append(f"{way}_value_{index}: {json_term(value)}")
        rules.append(f"{way}_first_{index}: {' | '.join(ways_first)}")
        rules.append(f"{way}_more_{index}: {' | '.join(ways_more)}")
    return [*rules, f'{way}_first_{len(values)}: ""', f'{way}_more_{len(values)}: ""']


def _properties(tool: HeldTool) -> list[tuple[str, dict[str, Any]]]:
    """Return the properties with their schemas. Raises InvalidRequestError naming tools."""
    schema = tool.schema
    others = sorted(set(schema) - _UNDERSTOOD)
    if others:
        raise _invalid(tool, f"{others[0]} beside properties")
    properties: Mapping[str, Any] = schema.get("properties", {})
    missing = sorted(set(schema.get("required", [])) - set(properties))
    if missing:
        raise _invalid(tool, f"the required property {missing[0]!r}, which is not described")
    shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    found = []
    for key, value in properties.items():
        if not key.isidentifier():
            raise _invalid(tool, f"the property {key!r}, which is no name in Python")
        if value is True:
            value = {}
        if not isinstance(value, Mapping):
            raise _invalid(tool, f"the property {key!r} without a schema")
        found.append((key, {**value, **shared}))
    return found


def _invalid(tool: HeldTool, what: str) -> InvalidRequestError:
    name = json.dumps(tool.name)
    return InvalidRequestError(
        f"tools: calls of {name} cannot be held to their schema: keyword arguments have no place "
        f"for {what}",
        field="tools",
    )
