"""From what an output must look like to a matcher of llguidance, and whether there is one.

Only the frontend's checker process and the worker import this: llguidance is a library of theirs.
Compiling may take long and much memory whatever the limits say, so a frontend does it in a process
that it can kill.
"""

import json
from collections.abc import Sequence
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.grammar_walks import find_fault
from pagewire_shared.sampling.structured_outputs import FIELD, Kind, StructuredOutputsParams

CODE: Final = "invalid_grammar"

JSON_WHITESPACE: Final = r" ?|\n {0,20}"
"""Between the tokens of JSON: nothing, a space, or a line break and an indentation. llguidance's
own default has no bound, and a model that is at a loss fills its answer with white space."""

LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=250_000,
    step_lexer_fuel=100_000,
    step_max_items=10_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)
"""Below llguidance's defaults, above what real grammars need: an enum of 4000 texts and a grammar
of 1500 alternatives do with a fifth of each, a schema of 300 properties alone with 8000 items. A
state of the lexer takes 1 to 2 kB, so a grammar stays below 100 MB. What items take grows with
their square where a grammar is ambiguous: such ones are found by a walk, and by what they cost."""

_MAX_REASON_CHARS: Final = 200
_NAMES: Final[dict[Kind, str]] = {
    "json_schema": "the JSON schema",
    "json_object": "json_object",
    "regex": "the regex",
    "grammar": "the grammar",
    "choice": "the choice",
}


def load_grammar_tokenizer(
    tokenizer_json: str, vocab_size: int, eos_token_ids: Sequence[int]
) -> LLTokenizer:
    """Return a tokenizer for matchers; takes 25 ms for 3072 ids and a second for 150000.

    Args:
        tokenizer_json: Content of a tokenizer.json.
        vocab_size: Logits of the model, at least the ids of the tokenizer.
        eos_token_ids: All ids that end an output; without any the tokenizer's own.

    Raises:
        InvalidRequestError: llguidance cannot use this tokenizer.
    """
    known = [token_id for token_id in eos_token_ids if 0 <= token_id < vocab_size]
    try:
        return LLTokenizer(tokenizer_json, n_vocab=vocab_size, eos_token=known or None)
    except ValueError as error:
        raise InvalidRequestError(
            f"{FIELD}: the model's tokenizer cannot be used: {_first_lines(str(error))}",
            field=FIELD,
            code=CODE,
        ) from error


def grammar_text(params: StructuredOutputsParams) -> str:
    """Return the grammar in llguidance's form, unchecked but for what has to be converted.

    Raises:
        InvalidRequestError: The text cannot be converted.
    """
    try:
        # A schema may hold options of its own ("x-guidance"); overrides go above them.
        if params.kind in ("json_schema", "json_object"):
            return LLMatcher.grammar_from_json_schema(
                _schema(params), overrides={"whitespace_pattern": JSON_WHITESPACE}
            )
        if params.choice is not None:
            return LLMatcher.grammar_from_lark(_choice_lark(params.choice))
        if params.regex is not None:
            return LLMatcher.grammar_from_regex(params.regex)
    except ValueError as error:
        raise invalid_grammar(params, _first_lines(str(error))) from error
    try:
        return LLMatcher.grammar_from_lark(any_to_lark(params.text))
    except Exception as error:  # the converter raises Exception itself, and IndexError at an end
        reason = _first_lines(str(error)) or type(error).__name__
        raise invalid_grammar(params, f"as GBNF: {reason}") from error


def _schema(params: StructuredOutputsParams) -> str:
    if params.kind == "json_object":
        return '{"type": "object"}'
    # llguidance takes its options from a schema, which therefore has to be an object.
    return {"true": "{}", "false": '{"anyOf": []}'}.get(params.text.strip(), params.text)


def _choice_lark(texts: Sequence[str]) -> str:
    # One terminal: a thousand texts are then one lexeme. Lark's strings have JSON's escapes; with
    # nothing but ASCII in them no character is special.
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(text) for text in texts)


def compile_grammar(tokenizer: LLTokenizer, params: StructuredOutputsParams) -> LLMatcher:
    """Return a matcher at the start of an output that has computed a mask; releases the interpreter
    lock.

    Raises:
        InvalidRequestError: There is none, in one line; field and code are set.
    """
    matcher = LLMatcher(tokenizer, grammar_text(params), log_level=0, limits=LIMITS)
    if not matcher.is_error():
        # A schema that refers to itself is found out here only.
        matcher.compute_bitmask()
    raise_for(matcher, params)
    return matcher


def check(tokenizer: LLTokenizer, params: StructuredOutputsParams) -> None:
    """Compile, and follow some outputs, always the same ones.

    Raises:
        InvalidRequestError: A matcher cannot be made, exceeds a limit soon after the start, or gets
            too slow.
    """
    fault = find_fault(tokenizer, compile_grammar(tokenizer, params))
    if fault is not None:
        raise invalid_grammar(params, _first_lines(fault))


def raise_for(matcher: LLMatcher, params: StructuredOutputsParams) -> None:
    """Raise InvalidRequestError with what is wrong when `matcher` is in error."""
    if matcher.is_error():
        raise invalid_grammar(params, first_reason(matcher))


def first_reason(matcher: LLMatcher) -> str:
    """Return in one line why `matcher` is in error, without its state."""
    return _first_lines(matcher.get_error())


def is_fault_of_output(reason: str) -> bool:
    """Whether a matcher made anew would fail for the same `reason`: the output is too ambiguous."""
    return "Too many items" in reason


def invalid_grammar(params: StructuredOutputsParams, reason: str) -> InvalidRequestError:
    """Return the error of `params` for a reason in one line."""
    return InvalidRequestError(f"{FIELD}: {_NAMES[params.kind]}: {reason}", field=FIELD, code=CODE)


def _first_lines(error: str) -> str:
    """Return the first line of a message and those that an inner compiler calls errors."""
    lines = [line.strip() for line in error.splitlines()] or [""]
    if lines[0].startswith("NoExtension"):
        return "no text matches it; is it empty, or defined by nothing but itself?"
    inner = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    text = " ".join([lines[0], *inner])
    if len(text) <= _MAX_REASON_CHARS:
        return text
    return text[: _MAX_REASON_CHARS - 1] + "…"
