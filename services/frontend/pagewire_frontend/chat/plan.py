"""Plans the messages of a request from its tools and reasoning: parameters, tools for the template,
and the reader of the text. HTTP, gRPC and the Responses API all go through this module."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pagewire_frontend.chat.call_plan import plan_calls
from pagewire_frontend.chat.harmony_plan import plan_harmony
from pagewire_frontend.chat.tool_use import NO_TOOLS, Tool, ToolUse, check_tool_use
from pagewire_frontend.message.call_format import CallFormat
from pagewire_frontend.message.pieces import MessagePieces, MessageReader, PlainReader, merged
from pagewire_frontend.message.reasoning import ReasoningFormat, ThoughtReader
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_shared.errors import PagewireError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import FIELD


class HiddenText:
    """Removes given texts from a stream of text, however it is cut."""

    def __init__(self, hidden: Collection[str]) -> None:
        """Create the hidden text.

        Args:
            hidden: Texts to leave out; of several at one place the longest.
        """
        longest_first = sorted(hidden, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._begun = {text[:length] for text in hidden for length in range(1, len(text))}
        self._most_held = max(map(len, hidden), default=1) - 1
        self._held = ""

    def push(self, text: str) -> str:
        """Return the text that may be shown."""
        text = self._held + text
        begin = self._first_begun(text)
        self._held = text[begin:]
        return self._pattern.sub("", text[:begin])

    def finish(self) -> str:
        """Return the text that was held back."""
        held, self._held = self._held, ""
        return self._pattern.sub("", held)

    def _first_begun(self, text: str) -> int:
        """Return the index where the end of `text` begins that may become a hidden text, and that
        no whole hidden text before it overlaps."""
        first = max(0, len(text) - self._most_held)
        for match in self._pattern.finditer(text):
            begun = self._search(text, first, match.start() + 1)
            if begun is not None:
                return begun
            first = max(first, match.end())
        begun = self._search(text, first, len(text))
        return len(text) if begun is None else begun

    def _search(self, text: str, first: int, end: int) -> int | None:
        return next((at for at in range(first, end) if text[at:] in self._begun), None)


class HidingReader:
    """A reader that hides texts from its inner reader, and from the client.

    Args:
        unread: Texts that `inner` is not given.
        unshown: Texts that are neither content nor reasoning.
    """

    def __init__(
        self, inner: MessageReader, *, unread: Collection[str], unshown: Collection[str]
    ) -> None:
        self._inner = inner
        self._before = HiddenText(unread)
        self._content = HiddenText(unshown)
        self._reasoning = HiddenText(unshown)

    @property
    def num_calls(self) -> int:
        """Tool calls so far."""
        return self._inner.num_calls

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        return self._shown(self._inner.push(self._before.push(text)))

    def finish(self) -> MessagePieces:
        """Return the pieces that were held back."""
        last = self._shown(self._inner.push(self._before.finish()))
        end = self._shown(self._inner.finish())
        held = MessagePieces(self._reasoning.finish(), self._content.finish())
        return merged(merged(last, end), held)

    def _shown(self, pieces: MessagePieces) -> MessagePieces:
        return MessagePieces(
            self._reasoning.push(pieces.reasoning), self._content.push(pieces.content), pieces.calls
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlan:
    """The way in which the messages of one request are made and read.

    Attributes:
        params: The sampling, with a grammar where calls are held to one.
        template_tools: `tools` of the chat template; None for none.
        has_grammar: The grammar in `params` is that of tools: an error in it is an error in
            `tools`.
        marks: What stands for tokens in the text that the reader takes, by token id.
    """

    params: SamplingParams
    template_tools: tuple[Mapping[str, Any], ...] | None = None
    new_reader: Callable[[], MessageReader] = PlainReader
    has_grammar: bool = False
    marks: Mapping[int, str] = field(default_factory=dict)

    def named(self, error: PagewireError) -> PagewireError:
        """Return `error`, which opening the request raised, with the field that is at fault."""
        if self.has_grammar and error.field == FIELD:
            error.message = error.message.replace(FIELD, "tools")
            error.field = "tools"
        return error


def plan_message(
    model: LoadedModel,
    params: SamplingParams,
    tool_use: ToolUse = NO_TOOLS,
    *,
    prompt_end: str = "",
    opens_turn: bool = True,
) -> MessagePlan:
    """Return the plan of the messages of `model`.

    Args:
        prompt_end: Text that the chat template writes behind a user's turn.
        opens_turn: The prompt ends with the opening of the assistant's turn.

    Raises:
        InvalidRequestError: The tools and the other parameters exclude each other, or the model
            cannot call tools; names the field.
    """
    check_tool_use(tool_use)
    harmony = model.formats.harmony
    if harmony is not None:
        answer = plan_harmony(
            harmony, params, tool_use, prompt_end=prompt_end, opens_turn=opens_turn
        )
        return MessagePlan(
            params=params.with_(structured_outputs=answer.outputs),
            template_tools=_template_tools(tool_use),
            new_reader=answer.new_reader,
            has_grammar=answer.has_call_grammar,
            marks=harmony.marks,
        )
    style = model.formats.reasoning
    is_held = params.structured_outputs is not None
    # The client's grammar covers the whole answer, which leaves no room for a thought.
    if is_held or not opens_turn:
        style = None
    is_open = style is not None and style.opens_in(prompt_end)
    calls = plan_calls(model, params, tool_use, style, is_open=is_open)
    special = _visible_markers(model, calls.format, style)
    is_hiding = bool(special) and params.skip_special_tokens
    if is_hiding:
        params = params.with_(skip_special_tokens=False)
    if calls.outputs is not None:
        params = params.with_(structured_outputs=calls.outputs)

    def new_reader() -> MessageReader:
        reader = calls.new_reader()
        if style is not None:
            reader = ThoughtReader(reader, style, is_open=is_open)
        if not is_hiding:
            return reader
        unread = model.tokenizer.special_texts - special
        return HidingReader(reader, unread=unread, unshown=special)

    return MessagePlan(
        params=params,
        template_tools=_template_tools(tool_use),
        new_reader=new_reader,
        has_grammar=calls.outputs is not None,
    )


def _visible_markers(
    model: LoadedModel, calls: CallFormat | None, style: ReasoningFormat | None
) -> frozenset[str]:
    """Return the markers that a text without special tokens would lack."""
    markers = [*(calls.markers if calls else ()), *(style.markers if style else ())]
    return model.tokenizer.special_texts.intersection(markers)


def _template_tools(use: ToolUse) -> tuple[Mapping[str, Any], ...] | None:
    """Return tools in OpenAI's form; None for a model that may use no tools."""
    if use.mode == "none" or not use.tools:
        return None
    return tuple(_template_tool(tool) for tool in use.tools)


def _template_tool(tool: Tool) -> Mapping[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    empty = {"type": "object", "properties": {}}
    function["parameters"] = dict(tool.parameters) if tool.parameters is not None else empty
    return {"type": "function", "function": function}
