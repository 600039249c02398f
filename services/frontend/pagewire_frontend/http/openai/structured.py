"""Reads the required form of an answer from the three kinds of fields that may give it."""

from collections.abc import Mapping
from typing import Any

from pagewire_frontend.http.openai.schemas import (
    ChatBody,
    GenerationBody,
    ResponseFormatBody,
    StructuredOutputsBody,
)
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.sampling.structured_outputs import FIELD, StructuredOutputsParams

_GUIDED = {
    "guided_json": "json",
    "guided_regex": "regex",
    "guided_choice": "choice",
    "guided_grammar": "grammar",
}
"""vLLM's older fields, and their names in structured_outputs."""


def given_field(body: GenerationBody) -> str:
    """Return the field that gives the form of the answer; the newest field where none does."""
    fields = ("response_format", *_GUIDED)
    return next((name for name in fields if getattr(body, name) is not None), FIELD)


def structured_outputs(body: GenerationBody) -> StructuredOutputsParams | None:
    """Return the required form of the answer, or None for any form.

    Raises:
        InvalidRequestError: Two fields give it, and the error names the second; or the form is not
            possible, and the error names structured_outputs, for `as_given` to translate.
    """
    said = {
        FIELD: _own(body.structured_outputs),
        "response_format": _from_format(body.response_format),
        **{old: _guided(new, getattr(body, old)) for old, new in _GUIDED.items()},
    }
    given = [field for field, kind in said.items() if kind is not None]
    if not given:
        return None
    if len(given) > 1:
        raise InvalidRequestError(
            f"{' and '.join(given)} exclude each other: one says what the answer looks like",
            field=given[1],
        )
    [field] = given
    return StructuredOutputsParams(**(said[field] or {}))


def _own(body: StructuredOutputsBody | None) -> Mapping[str, Any] | None:
    if body is None:
        return None
    for name, value in (body.model_extra or {}).items():
        if value not in (None, False):
            raise InvalidRequestError(
                f"{FIELD}: {name} is not supported yet", field=FIELD, code="unsupported_parameter"
            )
    kinds = {
        "json": body.json_,
        "regex": body.regex,
        "choice": body.choice,
        "grammar": body.grammar,
        "json_object": body.json_object,
        "disable_any_whitespace": body.disable_any_whitespace,
        "disable_additional_properties": body.disable_additional_properties,
    }
    return {name: value for name, value in kinds.items() if value is not None}


def _guided(name: str, value: Any) -> Mapping[str, Any] | None:
    return None if value is None else {name: value}


def _from_format(body: ResponseFormatBody | None) -> Mapping[str, Any] | None:
    if body is None or body.type == "text":
        return None
    if body.type == "json_object":
        return {"json_object": True}
    if body.json_schema is None:
        raise InvalidRequestError(
            "response_format: json_schema is required with this type", field="response_format"
        )
    return {"json": body.json_schema.schema_}


def as_given(error: PagewireError, body: GenerationBody) -> PagewireError:
    """Return `error` with the body's name of its field, also in the message."""
    names = {FIELD: given_field(body), "bad_token_sequences": "bad_words"}
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"
    given = names.get(error.field or "")
    if given is not None and given != error.field:
        error.message = error.message.replace(str(error.field), given)
        error.field = given
    return error
