"""Tool calls in the form of NousResearch's Hermes and Qwen 2.5 and 3, each in tags of its own:

<tool_call> {"name": "f", "arguments": {"a": 1}} </tool_call>
"""

from collections.abc import Collection, Sequence

from pagewire_frontend.message.call_format import CallRules, HeldTool, Marker
from pagewire_frontend.message.call_writer import CallWriter, new_call_id
from pagewire_frontend.message.json_rules import object_rules
from pagewire_frontend.message.object_reader import ObjectReader

BEGIN = "<tool_call>"
END = "</tool_call>"


class HermesReader(ObjectReader):
    """Reads calls in tags; a missing end tag is accepted."""

    marker = BEGIN

    def _behind_call(self) -> bool:
        rest = self._buffer.lstrip()
        if rest.startswith(END):
            self._drop(self._space() + len(END))
        elif END.startswith(rest):
            # A tag that is cut off is not content either.
            self._drop(len(self._buffer) if self._is_ended else 0)
            return False
        self._state = self._in_text
        return True


class HermesFormat:
    """The format of Hermes."""

    name = "hermes"
    markers: tuple[str, ...] = (BEGIN, END)

    def new_reader(self, names: Collection[str], *, max_calls: int | None) -> HermesReader:
        """Return a reader for one choice."""
        return HermesReader(CallWriter(new_call_id, max_calls), names)

    def rules(self, tools: Sequence[HeldTool], marker: Marker) -> CallRules:
        """Return the grammar of calls."""
        call = f'"\\n" call_object "\\n" {marker(END)}'
        return CallRules(
            first=call,
            further=f'"\\n" {marker(BEGIN)} {call}',
            marker=marker(BEGIN),
            rules=object_rules(tools, "arguments"),
        )
