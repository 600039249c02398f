"""Tool calls in the form of Mistral's models: a list of objects (tokenizers up to v7), or a name
and its arguments behind a marker each (from v11 on). A marker may stand between the two.

    [TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}]
    [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g{}
"""

import re
from collections.abc import Collection, Sequence

from pagewire_frontend.message.call_format import CallRules, HeldTool, Marker
from pagewire_frontend.message.call_writer import CallWriter, new_short_id
from pagewire_frontend.message.json_rules import argument_rules, object_rules
from pagewire_frontend.message.object_reader import ObjectReader

CALLS = "[TOOL_CALLS]"
ID = "[CALL_ID]"
ARGS = "[ARGS]"
_NAMED = re.compile(r"\s*([a-zA-Z0-9_-]{1,64})\s*(?:\[CALL_ID\]\w{0,64})?(?:\[ARGS\])?\s*(?=\{)")
_NAMED_SO_FAR = re.compile(r"\s*[a-zA-Z0-9_-]{0,64}\s*(?:\[[A-Z_]{0,7}(?:\]\w{0,64}\s*)?){0,2}")


class MistralReader(ObjectReader):
    """Reads calls behind the marker, in both forms."""

    marker = CALLS

    def _behind_marker(self) -> bool:
        if not self._skip_space():
            return self._wait()
        if self._buffer[0] == "[":
            self._hold(1)
            self._state = self._before_item
            return True
        self._state = self._in_name
        return True

    def _before_item(self) -> bool:
        return super()._behind_marker()

    def _in_name(self) -> bool:
        named = _NAMED.match(self._buffer)
        if named is not None and named[1] in self._names:
            self._drop(named.end())
            self._is_in_list = False
            self._begin_call(named[1])
            return True
        if named is None and _NAMED_SO_FAR.fullmatch(self._buffer):
            return self._wait()
        return self._give_up()

    def _behind_arguments(self) -> bool:
        if self._is_in_list:
            return super()._behind_arguments()
        self._state = self._in_text
        return True

    def _behind_call(self) -> bool:
        return self._behind_item(self._before_item)

    def _open_object(self) -> None:
        self._is_in_list = True
        super()._open_object()

    _is_in_list = False


class MistralFormat:
    """The format of Mistral's models."""

    name = "mistral"
    markers: tuple[str, ...] = (CALLS, ID, ARGS)

    def new_reader(self, names: Collection[str], *, max_calls: int | None) -> MistralReader:
        """Return a reader for one choice."""
        return MistralReader(CallWriter(new_short_id, max_calls), names)

    def rules(self, tools: Sequence[HeldTool], marker: Marker) -> CallRules:
        """Return the grammar of calls, in the newer form where the tokenizer has its marker."""
        if marker(ARGS).startswith("<["):
            return CallRules(
                first="call_named",
                further=f"{marker(CALLS)} call_named",
                marker=marker(CALLS),
                rules=argument_rules(tools, lambda name: f'"{name}" {marker(ARGS)}', "call_named"),
            )
        return CallRules(
            first='"[" call_object',
            further='", " call_object',
            marker=marker(CALLS),
            end='"]"',
            rules=object_rules(tools, "arguments"),
        )
