"""Rows of the table for SamplingParams and GuidedDecodingParams, and a decorator to take them."""

import functools
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeVar

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.names.foreign_name import (
    ForeignName,
    RefusedNameError,
    meaning_of,
    no_effect,
    refused,
    works,
)

_logger = logging.getLogger("pagewire")

SAMPLING: Final = (
    *works(
        "",
        "",
        n="",
        best_of="",
        presence_penalty="",
        frequency_penalty="",
        repetition_penalty="",
        temperature="",
        top_p="",
        top_k="",
        min_p="",
        seed="",
        stop="",
        stop_token_ids="",
        ignore_eos="",
        max_tokens="",
        min_tokens="",
        skip_special_tokens="",
        include_stop_str_in_output="",
        truncate_prompt_tokens="",
        logit_bias="",
        allowed_token_ids="",
        bad_words="",
        structured_outputs="",
    ),
    *works("", "0 to 20", logprobs="", prompt_logprobs=""),
    ForeignName(
        name="guided_decoding",
        here="structured_outputs",
        text="GuidedDecodingParams is another name of StructuredOutputsParams",
    ),
    *no_effect("the text is always made", "detokenize"),
    *no_effect("stop strings never show", "output_text_buffer_length"),
    *refused(
        "special tokens are written as the tokenizer does it",
        spaces_between_special_tokens="true",
    ),
    *refused(
        "no code of a user runs in a step; use logit_bias, allowed_token_ids, bad_words or"
        " structured_outputs",
        logits_processors="none|[]",
    ),
    *refused("LLM returns whole answers, and AsyncClient streams deltas", output_kind="0|2"),
    *refused("give the prompt a cache_salt of its own", skip_reading_prefix_cache="false"),
    *refused("log-probabilities are dictionaries by token id", flat_logprobs="false"),
    *refused("it is for plug-ins of vLLM, which do not run here", extra_args="none|{}"),
    *refused(
        "thoughts count as tokens of the answer; use max_tokens", thinking_token_budget="none"
    ),
)

STRUCTURED: Final = (
    *works("", "", json="", regex="", choice="", grammar="", json_object=""),
    *works(
        "",
        "with json and json_object",
        disable_any_whitespace="",
        disable_additional_properties="",
    ),
    *no_effect(
        "grammars are compiled with llguidance", "backend backend_was_auto disable_fallback"
    ),
    *refused(
        "white space is that of compact, spaced and indented JSON, or none: disable_any_whitespace",
        whitespace_pattern="none",
    ),
    *refused("use tools, whose calls a grammar holds to their schema", structural_tag="none"),
)

Params = TypeVar("Params")


def takes_names(rows: tuple[ForeignName, ...]) -> Callable[[type[Params]], type[Params]]:
    """Return a decorator of a dataclass, whose constructor then takes the names of `rows`, too.

    A name without effect is logged once per process. A refused one raises InvalidRequestError.
    """
    by_name = {row.name: row for row in rows}
    noted: set[str] = set()

    def decorate(cls: type[Params]) -> type[Params]:
        plain = cls.__init__
        own = {item.name for item in fields(cls)}  # type: ignore[arg-type]

        @functools.wraps(plain)
        def construct(self: Params, *positional: Any, **given: Any) -> None:
            try:
                plain(self, *positional, **given)
            except TypeError:
                if not (given.keys() - own) & by_name.keys():
                    raise
                plain(self, *positional, **_translated(given, by_name, noted))

        cls.__init__ = construct  # type: ignore[method-assign, assignment]
        return cls

    return decorate


def _translated(
    given: Mapping[str, Any], rows: Mapping[str, ForeignName], noted: set[str]
) -> dict[str, Any]:
    values = {}
    for name, value in given.items():
        row = rows.get(name)
        if row is None or row.here == name:
            values[name] = value
            continue
        try:
            meaning = meaning_of(row, value, name)
        except RefusedNameError as error:
            raise InvalidRequestError(str(error), field=name) from None
        if meaning.note and name not in noted:
            noted.add(name)
            _logger.warning("%s", meaning.note)
        if meaning.name and value is not None:
            values[meaning.name] = meaning.value
    return values
