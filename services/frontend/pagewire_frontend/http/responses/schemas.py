"""The body of POST /v1/responses as strict models, after OpenAI's published API description. Fields
that are not supported are refused by name, unknown ones are named in a header."""

from typing import Annotated, Any, ClassVar, Final, Literal

import orjson
from pydantic import Field

from pagewire_frontend.http.body_fields import FIRST_ERROR, StrictBody, Texts, with_sampling
from pagewire_frontend.http.field_outcomes import RESPONSES, refuse
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.fields import HttpBodies

MAX_METADATA_PAIRS: Final = 16
MAX_METADATA_KEY_CHARS: Final = 64
MAX_METADATA_VALUE_CHARS: Final = 512
MAX_INPUT_ITEMS: Final = 4096

_INCLUDABLE: Final = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "message.output_text.logprobs",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
LOGPROBS: Final = "message.output_text.logprobs"


class TextFormatBody(StrictBody):
    """The form of the text. An answer always has it; `description` is shown again only."""

    WITHOUT_EFFECT: ClassVar = ("description",)
    WITHOUT_EFFECT_AS: ClassVar = {"strict": False}

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    # "schema" is a name of pydantic's own.
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class TextBody(StrictBody):
    """Options of the text."""

    format: TextFormatBody | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningBody(StrictBody):
    """Options of the reasoning."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class FunctionToolBody(StrictBody):
    """A function that the model may call."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedResponseToolBody(StrictBody):
    """A function by its name."""

    type: Literal["function"]
    name: str


class AllowedToolsBody(StrictBody):
    """Some of the tools, and how they may be used."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedResponseToolBody], FIRST_ERROR]


class StreamOptionsBody(StrictBody):
    """Options of a stream; none of OpenAI's has an effect here."""


@with_sampling(HttpBodies.RESPONSES)
class ResponsesBody(StrictBody):
    """POST /v1/responses. `input` and `tools` are read item by item, for errors with a place."""

    REFUSED: ClassVar = RESPONSES
    WITHOUT_EFFECT: ClassVar = (
        *("max_tool_calls", "prompt_cache_key", "safety_identifier", "service_tier", "user"),
    )

    model: str | None = None
    input: str | Annotated[list[dict[str, Any]], FIRST_ERROR]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptionsBody | None = None
    include: Texts | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    top_logprobs: int | None = None
    text: TextBody | None = None
    tools: Annotated[list[dict[str, Any]], FIRST_ERROR] | None = None
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningBody | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    service_tier: str | None = None
    # What vLLM takes besides.
    cache_salt: str | None = None
    priority: int | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def unsupported(what: str, field: str) -> InvalidRequestError:
    """Return the error that refuses what is known but not offered."""
    return InvalidRequestError(
        f"{what} is not supported", field=field, code="unsupported_parameter"
    )


def check_body(body: ResponsesBody) -> None:
    """Refuse what the types alone do not. Raises InvalidRequestError naming the field."""
    for name, value in (body.model_extra or {}).items():
        refuse(name, value, RESPONSES)
    if body.stream_options and not body.stream:
        raise InvalidRequestError("stream_options needs stream true", field="stream_options")
    if body.truncation == "auto":
        raise unsupported("truncation auto", "truncation")
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        raise unsupported(f"text.verbosity {body.text.verbosity}", "text")
    for value in (
        (body.reasoning.summary, body.reasoning.generate_summary) if body.reasoning else ()
    ):
        if value not in (None, "auto"):
            raise unsupported(f"a {value} summary of the reasoning", "reasoning")
    for index, value in enumerate(body.include or ()):
        if value not in _INCLUDABLE:
            raise InvalidRequestError(
                f"include.{index}: nothing is called {value!r}", field="include"
            )
    _check_metadata(body.metadata or {})
    _check_numbers(body)
    _check_background(body)


def _check_numbers(body: ResponsesBody) -> None:
    """Refuse integers that cannot be shown again: what was asked for is part of a response, and
    our JSON has integers of 64 bits."""
    for name, value in body.model_dump(include=body.model_fields_set).items():
        try:
            orjson.dumps(value)
        except TypeError as error:
            raise InvalidRequestError(
                f"{name}: integers must be of at most 64 bits", field=name
            ) from error


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > MAX_METADATA_PAIRS:
        raise InvalidRequestError(
            f"metadata takes at most {MAX_METADATA_PAIRS} pairs, got {len(metadata)}",
            field="metadata",
        )
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY_CHARS:
            raise InvalidRequestError(
                f"metadata: a key has at most {MAX_METADATA_KEY_CHARS} characters", field="metadata"
            )
        if len(value) > MAX_METADATA_VALUE_CHARS:
            raise InvalidRequestError(
                f"metadata: a value has at most {MAX_METADATA_VALUE_CHARS} characters",
                field="metadata",
            )


def _check_background(body: ResponsesBody) -> None:
    if body.background and body.store is False:
        raise InvalidRequestError(
            "background needs store: what ends without its client must be kept", field="background"
        )
