"""Plans answers in the harmony format: their reader, and the grammar that holds a call or the text
of the final message behind its header. The grammar is in the Lark form of llguidance."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_frontend.chat.call_plan import calls_grammar, check_combination, held_tools
from pagewire_frontend.chat.tool_use import ToolUse
from pagewire_frontend.message.harmony import HarmonyFormat
from pagewire_frontend.message.json_rules import argument_rules, json_term
from pagewire_frontend.message.pieces import MessageReader
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import FIELD, StructuredOutputsParams

_MAX_BEFORE: Final = 8
"""Most messages before the last: a model that goes astray would begin one thought after another."""
_TEXT: Final = r"HARMONY_TEXT: /(.|\n)*/"


@dataclass(frozen=True, slots=True, kw_only=True)
class HarmonyPlan:
    """The way in which an answer is requested and read.

    Attributes:
        new_reader: Makes a reader of one choice.
        outputs: The grammar of the answer, or None.
        has_call_grammar: It is a grammar of calls, not one that the client gave.
    """

    new_reader: Callable[[], MessageReader]
    outputs: StructuredOutputsParams | None = None
    has_call_grammar: bool = False


def plan_harmony(
    form: HarmonyFormat,
    params: SamplingParams,
    use: ToolUse,
    *,
    prompt_end: str,
    opens_turn: bool,
) -> HarmonyPlan:
    """Return the plan of one request. A harmony answer ends with its first call.

    Args:
        form: The format, with the tokens of the model.
        params: How to sample.
        use: Tools, checked already.
        prompt_end, opens_turn: As in `HarmonyFormat.new_reader`.

    Raises:
        InvalidRequestError: The combination is not possible; names the field.
    """
    is_forced = use.mode == "required"
    is_held = use.mode != "none" and (is_forced or any(tool.strict for tool in use.tools))
    names = frozenset(tool.name for tool in use.tools if use.mode != "none")
    outputs = params.structured_outputs
    if is_held:
        check_combination(params, is_forced=is_forced)
        if not opens_turn:
            field = "tool_choice" if is_forced else "tools"
            raise InvalidRequestError(
                f"{field}: calls that are held to a grammar need a turn of their own, which "
                "continue_final_message and add_generation_prompt false do not open",
                field=field,
            )
        outputs = calls_grammar(_call_grammar(form, use, is_forced=is_forced))
    elif outputs is not None and opens_turn:
        outputs = StructuredOutputsParams(grammar=_final_grammar(form, outputs))

    def new_reader() -> MessageReader:
        max_calls = None if use.is_parallel else 1
        return form.new_reader(
            names, max_calls=max_calls, prompt_end=prompt_end, opens_turn=opens_turn
        )

    return HarmonyPlan(new_reader=new_reader, outputs=outputs, has_call_grammar=is_held)


def _call_grammar(form: HarmonyFormat, use: ToolUse, *, is_forced: bool) -> str:
    """Return the grammar of an answer that is a call, or that may be one."""

    def header(name: str) -> str:
        sent = json.dumps(f"commentary to=functions.{name} ")
        return f'{form.token("<|channel|>")} {sent} {form.token("<|constrain|>")} "json" {message}'

    message = form.token("<|message|>")
    rules = argument_rules(held_tools(use), header, "harmony_call")
    if is_forced:
        return _grammar(form, "harmony_call", rules)
    final = f"harmony_final: {_opened(form, 'final')} HARMONY_TEXT"
    return _grammar(form, "(harmony_call | harmony_final)", [*rules, final], said="commentary")


def _final_grammar(form: HarmonyFormat, outputs: StructuredOutputsParams) -> str:
    """Return the grammar of an answer whose final message is held to `outputs`."""
    rule = f"harmony_final: {_opened(form, 'final')} harmony_answer"
    return _grammar(form, "harmony_final", [rule, *_answer_rules(outputs)])


def _grammar(form: HarmonyFormat, last: str, rules: Sequence[str], said: str = "") -> str:
    """Return the grammar of an answer: thoughts, and messages in the channel `said`, then
    `last`."""
    channels = ["analysis", said] if said else ["analysis"]
    behind = f'{form.token("<|end|>")} {form.token("<|start|>")} "assistant"'
    ways = " | ".join(f"{_opened(form, channel)} HARMONY_TEXT {behind}" for channel in channels)
    start = f"start: harmony_before{{0,{_MAX_BEFORE}}} {last}"
    return "\n".join(["%llguidance {}", start, f"harmony_before: {ways}", _TEXT, *rules])


def _opened(form: HarmonyFormat, channel: str) -> str:
    return f'{form.token("<|channel|>")} "{channel}" {form.token("<|message|>")}'


def _answer_rules(outputs: StructuredOutputsParams) -> list[str]:
    """Return the rules of harmony_answer, a text that keeps to `outputs`."""
    if outputs.choice is not None:
        # One terminal, so that a thousand texts are one lexeme.
        texts = " | ".join(map(json.dumps, outputs.choice))
        return ["harmony_answer: HARMONY_CHOICE", f"HARMONY_CHOICE: {texts}"]
    return [f"harmony_answer: {_term(outputs)}"]


def _term(outputs: StructuredOutputsParams) -> str:
    if outputs.json_object:
        return json_term({"type": "object"})
    if outputs.json is not None:
        schema = json.loads(str(outputs.json))
        # A schema of true or false; options of the compiler need an object.
        if isinstance(schema, bool):
            schema = {} if schema else {"anyOf": []}
        return json_term(schema)
    if outputs.regex is not None:
        # A slash ends the expression, unless it is escaped already.
        escaped = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", outputs.regex)
        return f"/{escaped}/".replace("\n", r"\n")
    raise InvalidRequestError(
        f"{FIELD}: a grammar cannot be put behind the header of a harmony message; use json, "
        "json_object, regex or choice",
        field=FIELD,
    )
