"""Plans the messages of a request from its tools and reasoning: parameters, tools for the template,
and the reader of the text. HTTP, gRPC and the Responses API all go through this module."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pagewire_frontend.chat.call_plan import plan_calls
from pagewire_frontend.chat.hidden_text import HidingReader
from pagewire_frontend.chat.tool_use import NO_TOOLS, Tool, ToolUse, check_tool_use
from pagewire_frontend.message.call_format import CallFormat
from pagewire_frontend.message.pieces import MessageReader, PlainReader
from pagewire_frontend.message.reasoning import ReasoningFormat, ThoughtReader
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_shared.errors import PagewireError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import FIELD


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePlan:
    """The way in which the messages of one request are made and read.

    Attributes:
        params: The sampling, with a grammar where calls are held to one.
        template_tools: `tools` of the chat template; None for none.
        new_reader: Makes a reader for one choice.
        has_grammar: The grammar in `params` is that of tools: an error in it is an error in
            `tools`.
    """

    params: SamplingParams
    template_tools: tuple[Mapping[str, Any], ...] | None = None
    new_reader: Callable[[], MessageReader] = PlainReader
    has_grammar: bool = False

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
