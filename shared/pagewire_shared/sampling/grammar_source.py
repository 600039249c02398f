"""Compiles the grammar of structured outputs to a matcher of llguidance, or raises an error.

Only the frontend's checker process and the worker import this module, because only they install
llguidance. Compiling may take long and much memory despite the limits, so a frontend compiles in a
process that it can kill.
"""

import json
from collections.abc import Sequence
from typing import Final

from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.gbnf_to_lark import any_to_lark

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.grammar_walks import find_fault
from pagewire_shared.sampling.schema_options import FLEXIBLE, OPTIONS, is_compact
from pagewire_shared.sampling.structured_outputs import FIELD, Kind, StructuredOutputsParams

CODE: Final = "invalid_grammar"

JSON_WHITESPACE: Final = r" ?|\n {0,20}"
"""White space between the tokens of JSON: none, a space, or a line break with an indentation.
llguidance's default has no bound, and a model that goes astray emits white space without end."""

LIMITS: Final = LLParserLimits(
    initial_lexer_fuel=250_000,
    step_lexer_fuel=100_000,
    step_max_items=10_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    verbose_errors=False,
)
"""Limits below llguidance's defaults and above the needs of real grammars. An enum of 4000 texts
and a grammar of 1500 alternatives need a fifth of each; a schema of 300 properties needs 8000
items. A state of the lexer takes 1 to 2 kB, so a grammar stays below 100 MB. The cost of items
grows with their square where a grammar is ambiguous; grammar_walks finds such grammars by cost."""

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
    """Return a tokenizer for matchers, in 25 ms for 3072 ids and a second for 150000.

    Args:
        tokenizer_json: Content of a tokenizer.json.
        vocab_size: Number of logits of the model, at least that of the tokenizer's ids.
        eos_token_ids: All ids that end an output; empty for the tokenizer's own.

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
    """Return the grammar in llguidance's form; it is checked only where it is converted.

    Raises:
        InvalidRequestError: The text cannot be converted.
    """
    try:
        # A schema may contain options ("x-guidance"); overrides take precedence.
        if params.kind in ("json_schema", "json_object"):
            schema = _schema(params)
            is_spaced = OPTIONS not in schema or not is_compact(json.loads(schema))
            return LLMatcher.grammar_from_json_schema(
                schema,
                overrides={
                    FLEXIBLE: is_spaced,
                    "whitespace_pattern": JSON_WHITESPACE if is_spaced else "",
                },
            )
        if params.choice is not None:
            return LLMatcher.grammar_from_lark(_choice_lark(params.choice))
        if params.regex is not None:
            return LLMatcher.grammar_from_regex(params.regex)
    except ValueError as error:
        raise invalid_grammar(params, _first_lines(str(error))) from error
    try:
        return LLMatcher.grammar_from_lark(any_to_lark(params.text))
    except Exception as error:  # the converter raises bare Exception, and IndexError at the end
        reason = _first_lines(str(error)) or type(error).__name__
        raise invalid_grammar(params, f"as GBNF: {reason}") from error


def _schema(params: StructuredOutputsParams) -> str:
    if params.kind == "json_object":
        return '{"type": "object"}'
    # llguidance reads its options from the schema, which therefore must be an object.
    return {"true": "{}", "false": '{"anyOf": []}'}.get(params.text.strip(), params.text)


def _choice_lark(texts: Sequence[str]) -> str:
    # One terminal, so that a thousand texts are one lexeme. Lark's strings have JSON's escapes;
    # json.dumps writes ASCII only, in which no character is special.
    return "start: CHOICE\nCHOICE: " + " | ".join(json.dumps(text) for text in texts)


def compile_grammar(tokenizer: LLTokenizer, params: StructuredOutputsParams) -> LLMatcher:
    """Return a matcher at the start of an output, after a first mask; releases the interpreter
    lock.

    Raises:
        InvalidRequestError: The grammar does not compile; the message has one line.
    """
    matcher = LLMatcher(tokenizer, grammar_text(params), log_level=0, limits=LIMITS)
    if not matcher.is_error():
        # Only this call detects a schema that refers to itself.
        matcher.compute_bitmask()
    raise_for(matcher, params)
    return matcher


def check(tokenizer: LLTokenizer, params: StructuredOutputsParams) -> None:
    """Compile, and follow some outputs, the same ones at every call.

    Raises:
        InvalidRequestError: The grammar does not compile, exceeds a limit soon after the start, or
            gets too slow.
    """
    fault = find_fault(tokenizer, compile_grammar(tokenizer, params))
    if fault is not None:
        raise invalid_grammar(params, _first_lines(fault))


def raise_for(matcher: LLMatcher, params: StructuredOutputsParams) -> None:
    """Raise InvalidRequestError with the reason when `matcher` is in error."""
    if matcher.is_error():
        raise invalid_grammar(params, first_reason(matcher))


def first_reason(matcher: LLMatcher) -> str:
    """Return the error of `matcher` in one line, without its state."""
    return _first_lines(matcher.get_error())


def is_fault_of_output(reason: str) -> bool:
    """Return whether a new matcher would fail for the same `reason`: a too ambiguous output."""
    return "Too many items" in reason


def invalid_grammar(params: StructuredOutputsParams, reason: str) -> InvalidRequestError:
    """Return an error for `params` with a reason in one line."""
    return InvalidRequestError(f"{FIELD}: {_NAMES[params.kind]}: {reason}", field=FIELD, code=CODE)


def _first_lines(error: str) -> str:
    """Return the first line of a message, and the lines that an inner compiler marks as errors."""
    lines = [line.strip() for line in error.splitlines()] or [""]
    if lines[0].startswith("NoExtension"):
        return "no text matches it; is it empty, or defined by nothing but itself?"
    inner = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    text = " ".join([lines[0], *inner])
    if len(text) <= _MAX_REASON_CHARS:
        return text
    return text[: _MAX_REASON_CHARS - 1] + "…"
