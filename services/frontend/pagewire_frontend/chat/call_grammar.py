"""Builds the grammar of a whole answer with tool calls, in the Lark form of llguidance
(docs/syntax.md there: special tokens, lazy lexemes, tool calling)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_frontend.message.call_format import CallRules, Marker
from pagewire_frontend.message.reasoning import ReasoningFormat
from pagewire_frontend.models.tokenizer import TextTokenizer

_ANY: Final = r"/(.|\n)*/"


@dataclass(frozen=True, slots=True)
class ThoughtRules:
    """The grammar of a thought before the answer: a Lark expression and the rules that it refers
    to."""

    expression: str = ""
    rules: Sequence[str] = ()


NO_THOUGHT: Final = ThoughtRules()


def forced_calls(rules: CallRules, *, is_parallel: bool, thought: ThoughtRules = NO_THOUGHT) -> str:
    """Return the grammar of an answer that is calls and nothing else but a thought before them.

    Args:
        is_parallel: Several calls are possible.
        thought: From `thought_rules`.
    """
    # A format that needs no marker is read without one.
    marker = "" if rules.lead else rules.marker
    start = f"{thought.expression} {marker} call_all"
    return _grammar(start, rules, thought, is_parallel=is_parallel)


def free_calls(rules: CallRules, *, is_parallel: bool, thought: ThoughtRules = NO_THOUGHT) -> str:
    """Return the grammar of any answer, in which text that begins like a call must be a call.

    Takes the arguments of `forced_calls`.
    """
    ways = ["CALL_TEXT"]
    more = [f"CALL_TEXT: {_text_without(rules.lead)}"]
    if rules.lead:
        ways.append("call_all")
    if rules.marker:
        ways.append("call_marked call_all")
        more.append(_up_to("call_marked", "CALL_TEXT", rules.marker))
    start = f"{thought.expression} ({' | '.join(ways)})"
    return _grammar(start, rules, thought, more, is_parallel=is_parallel)


def thought_rules(style: ReasoningFormat, marker: Marker, *, is_open: bool) -> ThoughtRules:
    """Return the rules that let a model think first. If the prompt has opened a thought the model
    must, otherwise it may."""
    rules = [
        f"CALL_THOUGHT: {_ANY}",
        r"CALL_GAP: /\n{0,2}/",
        _up_to("call_thought_end", "CALL_THOUGHT", marker(style.end)),
    ]
    if is_open:
        return ThoughtRules("call_thought_end CALL_GAP", rules)
    rules.append(f"call_thought: {marker(style.begin)} call_thought_end CALL_GAP")
    return ThoughtRules("call_thought?", rules)


def marker_in(tokenizer: TextTokenizer) -> Marker:
    """Return a function that writes a marker in grammars for a tokenizer: as the token of the
    marker if it has its own, because llguidance takes no text for such tokens."""

    def marker(text: str) -> str:
        token_id = tokenizer.added_tokens.get(text)
        return json.dumps(text) if token_id is None else f"<[{token_id}]>"

    return marker


def _grammar(
    start: str,
    rules: CallRules,
    thought: ThoughtRules,
    more: Sequence[str] = (),
    *,
    is_parallel: bool,
) -> str:
    further = f"({rules.further})*" if is_parallel else ""
    lines = [
        "%llguidance {}",
        f"start: {start}",
        f"call_all: {rules.first} {further} {rules.end}",
        *more,
        *thought.rules,
        *rules.rules,
    ]
    return "\n".join(lines)


def _up_to(rule: str, text: str, marker: str) -> str:
    """Return `rule`: a text up to and with a marker. A marker of letters ends a lazy text; a text
    never contains the token of any other marker."""
    is_token = marker.startswith("<[")
    return f"{rule}{'' if is_token else '[lazy]'}: {text} {marker}"


def _text_without(lead: str) -> str:
    """Return the pattern of a text that does not begin with `lead`, one character."""
    return rf"/(\s*[^\s\{lead}](.|\n)*)?/" if lead else _ANY
