"""Plans the tool calls of one request: the format in which they are read, and the grammar, if any,
that holds the model to them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pagewire_frontend.chat.call_grammar import (
    NO_THOUGHT,
    forced_calls,
    free_calls,
    marker_in,
    thought_rules,
)
from pagewire_frontend.chat.tool_use import Tool, ToolUse
from pagewire_frontend.message.call_format import CallFormat, CallRules, HeldTool, Marker
from pagewire_frontend.message.hermes import HermesFormat
from pagewire_frontend.message.pieces import MessageReader, PlainReader
from pagewire_frontend.message.reasoning import ReasoningFormat
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import MAX_GRAMMAR_BYTES, StructuredOutputsParams

_NO_ARGUMENTS: Final = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_ARGUMENTS: Final = {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPlan:
    """The way in which calls are requested and read.

    Attributes:
        format: None when no calls are read.
        new_reader: Makes a reader of the text outside of thoughts.
        outputs: The grammar that holds the model to its calls, or None.
    """

    format: CallFormat | None = None
    new_reader: Callable[[], MessageReader] = PlainReader
    outputs: StructuredOutputsParams | None = None


def plan_calls(
    model: LoadedModel,
    params: SamplingParams,
    use: ToolUse,
    style: ReasoningFormat | None,
    *,
    is_open: bool,
) -> CallPlan:
    """Return the plan of the calls of one request.

    Args:
        use: Tools, checked already.
        style: Format in which the model may think before it calls.
        is_open: The prompt has opened a thought.

    Raises:
        InvalidRequestError: The combination is not possible; names the field.
    """
    if use.mode == "none" or not use.tools:
        return CallPlan()
    is_forced = use.mode == "required"
    is_held = is_forced or any(tool.strict for tool in use.tools)
    call_format = model.formats.calls
    if not is_forced and call_format is None:
        raise InvalidRequestError(
            f"tools: no parser for the tool calls of {model.name} is known, so that it cannot be "
            'left to the model whether it calls one; ask for tool_choice "required" or a named '
            "tool, or start the frontend with --tool-call-parser",
            field="tools",
        )
    if is_held:
        check_combination(params, is_forced=is_forced)
    elif params.structured_outputs is not None:
        # The client's own grammar holds the answer.
        return CallPlan()
    outputs = None
    if is_held:
        marker = marker_in(model.tokenizer)
        call_format, rules = _format_with_rules(call_format, held_tools(use), marker, is_forced)
        thought = thought_rules(style, marker, is_open=is_open) if style else NO_THOUGHT
        make = forced_calls if is_forced else free_calls
        is_parallel = use.is_parallel and use.name is None
        outputs = calls_grammar(make(rules, is_parallel=is_parallel, thought=thought))
    return CallPlan(format=call_format, new_reader=_reader_of(call_format, use), outputs=outputs)


def _reader_of(call_format: CallFormat | None, use: ToolUse) -> Callable[[], MessageReader]:
    assert call_format is not None
    names = frozenset(tool.name for tool in use.tools)
    max_calls = None if use.is_parallel else 1
    return lambda: call_format.new_reader(names, max_calls=max_calls)


def _format_with_rules(
    own: CallFormat | None, tools: Sequence[HeldTool], marker: Marker, is_forced: bool
) -> tuple[CallFormat, CallRules]:
    """Return the model's own format with its grammar. A forced model without such a grammar writes
    calls as Hermes does."""
    rules = own.rules(tools, marker) if own is not None else None
    if own is not None and rules is not None:
        return own, rules
    if not is_forced:
        name = own.name if own is not None else "none"
        raise InvalidRequestError(
            f"tools: strict needs a grammar, which the parser {name} does not have", field="tools"
        )
    hermes = HermesFormat()
    return hermes, hermes.rules(tools, marker)


def held_tools(use: ToolUse) -> list[HeldTool]:
    """Return the tools that a grammar lets the model call, with the schemas of their arguments."""
    is_forced = use.mode == "required"
    tools = [tool for tool in use.tools if use.name in (None, tool.name)]
    return [
        HeldTool(tool.name, _schema(tool) if is_forced or tool.strict else _ANY_ARGUMENTS)
        for tool in tools
    ]


def _schema(tool: Tool) -> Mapping[str, Any]:
    if tool.parameters is None:
        return _NO_ARGUMENTS
    # Arguments are an object, also where the schema does not say so.
    return {"type": "object", **tool.parameters}


def check_combination(params: SamplingParams, *, is_forced: bool) -> None:
    """Raise InvalidRequestError where calls cannot be held to a grammar beside `params`."""
    field = "tool_choice" if is_forced else "tools"
    what = "calls that are forced" if is_forced else "strict tools"
    if params.structured_outputs is not None:
        raise InvalidRequestError(
            f"{field}: {what} and response_format or structured_outputs exclude each other",
            field=field,
        )
    if params.use_beam_search:
        raise InvalidRequestError(
            f"{field}: {what} cannot be combined with use_beam_search", field=field
        )


def calls_grammar(grammar: str) -> StructuredOutputsParams:
    """Return the grammar of calls as a constraint. Raises InvalidRequestError naming tools."""
    if len(grammar) > MAX_GRAMMAR_BYTES:
        raise InvalidRequestError(
            f"tools: their grammar may have at most {MAX_GRAMMAR_BYTES} characters, got "
            f"{len(grammar)}: shorter schemas or fewer tools",
            field="tools",
        )
    return StructuredOutputsParams(grammar=grammar)
