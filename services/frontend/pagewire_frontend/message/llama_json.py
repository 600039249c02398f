"""Tool calls in the form of Llama 3.1 to 3.3: a message of nothing but JSON objects, separated by
semicolons, or objects behind <|python_tag|>.

    {"name": "f", "parameters": {"a": 1}}; {"name": "g", "parameters": {}}
"""

from collections.abc import Collection, Sequence

from pagewire_frontend.message.call_format import CallRules, HeldTool, Marker
from pagewire_frontend.message.call_writer import CallWriter, new_call_id
from pagewire_frontend.message.json_rules import object_rules
from pagewire_frontend.message.object_reader import ObjectReader

TAG = "<|python_tag|>"


class LlamaJsonReader(ObjectReader):
    """Reads calls at the beginning of a message, or behind the tag."""

    marker = TAG

    def _begin(self) -> bool:
        return self._behind_marker()

    def _behind_call(self) -> bool:
        if not self._skip_space():
            return self._wait()
        if self._buffer[0] != ";":
            return self._give_up()
        self._hold(1)
        self._state = self._behind_marker
        return True


class LlamaJsonFormat:
    """The format of Llama 3.1 to 3.3."""

    name = "llama3_json"
    markers: tuple[str, ...] = (TAG,)

    def new_reader(self, names: Collection[str], *, max_calls: int | None) -> LlamaJsonReader:
        """Return a reader for one choice."""
        return LlamaJsonReader(CallWriter(new_call_id, max_calls), names)

    def rules(self, tools: Sequence[HeldTool], marker: Marker) -> CallRules:
        """Return the grammar of calls."""
        return CallRules(
            first="call_object",
            further='"; " call_object',
            marker=marker(TAG),
            lead="{",
            rules=object_rules(tools, "parameters"),
        )
