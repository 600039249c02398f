"""Tool calls in the form of Llama 3.2 (1B, 3B), Llama 4 and ToolACE: a message of nothing but a
Python list of calls with keyword arguments.

    [f(a=1, b="x"), g()]
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pagewire_frontend.message.call_format import CallRules, HeldTool, Marker
from pagewire_frontend.message.call_writer import CallWriter, new_call_id
from pagewire_frontend.message.json_rules import json_term
from pagewire_frontend.message.python_value import ValueScanner, value_as_json
from pagewire_frontend.message.text_machine import TextMachine
from pagewire_shared.errors import InvalidRequestError

_NAME = re.compile(r"\s*([a-zA-Z0-9_-]{1,64})\s*\(")
_NAME_SO_FAR = re.compile(r"\s*[a-zA-Z0-9_-]{0,64}\s*")
_NO_ARGUMENTS = re.compile(r"\s*\)")
_KEYWORD = re.compile(r"\s*([^\W\d]\w*)\s*=(?=[^=])")
_KEYWORD_SO_FAR = re.compile(r"\s*(?:[^\W\d]\w*\s*=?)?")


class PythonicReader(TextMachine):
    """Reads a list of calls at the beginning of a message. A call begins with the first keyword;
    each argument is passed on, in JSON, once it is whole."""

    def __init__(self, writer: CallWriter, names: Collection[str]) -> None:
        super().__init__(writer)
        self._names = names
        self._name = ""
        self._key = ""
        self._num_arguments = 0
        self._scanner = ValueScanner()
        self._num_scanned = 0

    def _begin(self) -> bool:
        if not self._skip_space():
            return self._wait()
        if self._buffer[0] != "[":
            return self._give_up()
        self._hold(1)
        self._state = self._in_name
        return True

    def _in_text(self) -> bool:
        """Take all text as content: no call follows behind text that was not a call."""
        self._writer.say(self._drop(len(self._buffer)))
        return False

    def _in_name(self) -> bool:
        found = _NAME.match(self._buffer)
        if found is not None and found[1] in self._names:
            self._name = found[1]
            self._hold(found.end())
            self._state = self._in_first
            return True
        if found is None and _NAME_SO_FAR.fullmatch(self._buffer):
            return self._wait()
        return self._give_up()

    def _in_first(self) -> bool:
        """Take the text behind the bracket that opens a call."""
        if _NO_ARGUMENTS.match(self._buffer) or _KEYWORD.match(self._buffer):
            self._held = ""
            self._writer.begin_call(self._name)
            self._writer.add_arguments("{")
            self._num_arguments = 0
            self._state = self._in_keyword
            return True
        return self._wait() if _KEYWORD_SO_FAR.fullmatch(self._buffer) else self._give_up()

    def _in_keyword(self) -> bool:
        end, keyword = _NO_ARGUMENTS.match(self._buffer), _KEYWORD.match(self._buffer)
        if end is not None:
            self._drop(end.end())
            self._writer.add_arguments("}")
            self._held = ""
            self._state = self._behind_call
            return True
        if keyword is not None:
            self._key = keyword[1]
            self._hold(keyword.end())
            self._scanner, self._num_scanned = ValueScanner(), 0
            self._state = self._in_value
            return True
        return self._wait() if _KEYWORD_SO_FAR.fullmatch(self._buffer) else self._give_up()

    def _in_value(self) -> bool:
        at = self._scanner.feed(self._buffer[self._num_scanned :])
        if self._scanner.is_broken:
            return self._give_up()
        if at is None:
            self._num_scanned = len(self._buffer)
            return self._wait()
        end = self._num_scanned + at
        value = value_as_json(self._buffer[:end])
        if value is None or self._buffer[end] not in ",)":
            return self._give_up()
        comma = ", " if self._num_arguments else ""
        self._writer.add_arguments(f"{comma}{json.dumps(self._key)}: {value}")
        self._num_arguments += 1
        self._held = ""
        self._drop(end)
        if self._buffer[0] == ",":
            self._hold(1)
        self._state = self._in_keyword
        return True

    def _behind_call(self) -> bool:
        return self._behind_item(self._in_name)


class PythonicFormat:
    """The format of Llama 3.2, Llama 4 and ToolACE."""

    name = "pythonic"
    markers: tuple[str, ...] = ()

    def new_reader(self, names: Collection[str], *, max_calls: int | None) -> PythonicReader:
        """Return a reader for one choice."""
        return PythonicReader(CallWriter(new_call_id, max_calls), names)

    def rules(self, tools: Sequence[HeldTool], marker: Marker) -> CallRules:
        """Return the grammar of calls."""
        return CallRules(
            first='"[" call_python',
            further='", " call_python',
            lead="[",
            end='"]"',
            rules=keyword_rules(tools, "call_python"),
        )


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
