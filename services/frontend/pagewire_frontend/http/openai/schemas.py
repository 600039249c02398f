"""Bodies of requests as strict models without coercion. `http.field_outcomes` says what becomes of
fields that no model has. Owns no defaults of sampling.
"""

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from pagewire_frontend.http import field_outcomes
from pagewire_frontend.http.body_fields import (
    FIRST_ERROR,
    Ids,
    ListsOfIds,
    StrictBody,
    Texts,
    with_sampling,
)
from pagewire_frontend.http.openai.tool_schemas import NamedToolBody, SaidCallBody, ToolBody
from pagewire_frontend.http.openai.validation import as_invalid
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.names.part_types import refused_part
from pagewire_shared.sampling.fields import HttpBodies

MAX_PROMPTS = 256
EFFORTS = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
"""How long a model may think, in the words of its chat template."""


class StreamOptions(StrictBody):
    """Additional contents of a stream."""

    REFUSED: ClassVar = field_outcomes.STREAM_OPTIONS

    include_usage: bool | None = None


class JsonSchemaBody(StrictBody):
    """The schema of a response_format. An answer always has its form."""

    WITHOUT_EFFECT_AS: ClassVar = {"strict": False}

    name: str
    # "schema" is a name of pydantic's own.
    schema_: dict[str, Any] | bool = Field(alias="schema")
    strict: bool | None = None


class ResponseFormatBody(StrictBody):
    """Structured outputs in the form of OpenAI."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaBody | None = None


class StructuredOutputsBody(StrictBody):
    """Structured outputs in the form of vLLM."""

    # "json" is a name of pydantic's own.
    json_: str | dict[str, Any] | bool | None = Field(None, alias="json")
    regex: str | None = None
    choice: Texts | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None


@with_sampling(HttpBodies.OPENAI)
class GenerationBody(StrictBody):
    """Fields of chat completions and of completions."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    add_special_tokens: bool | None = None
    cache_salt: str | None = None
    priority: int | None = None
    logit_bias: dict[str, float] | None = None
    echo: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    response_format: ResponseFormatBody | None = None
    structured_outputs: StructuredOutputsBody | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: Texts | None = None
    guided_grammar: str | None = None

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether a stream ends with a chunk of token counts."""
        return bool(self.stream_options and self.stream_options.include_usage)


class TextPart(StrictBody):
    """A text inside a message."""

    type: Literal["text"]
    text: str


class ChatMessageBody(StrictBody):
    """One turn."""

    REFUSED: ClassVar = field_outcomes.MESSAGE

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], FIRST_ERROR] | None = None
    name: str | None = None
    tool_calls: Annotated[list[SaidCallBody], FIRST_ERROR] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    # vLLM's newer name for it.
    reasoning: str | None = None

    @field_validator("role", mode="before")
    @classmethod
    def _no_function(cls, value: Any) -> Any:
        if value == "function":
            raise PydanticCustomError("unsupported", "function is not supported; use tool")
        return value

    @field_validator("content", mode="before")
    @classmethod
    def _text_only(cls, value: Any) -> Any:
        for part in value if isinstance(value, list) else ():
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind != "text":
                raise PydanticCustomError("unsupported", "{why}", {"why": refused_part(kind)})
        return value


class PredictionBody(StrictBody):
    """What an answer is expected to be."""

    type: Literal["content"]
    content: str | Annotated[list[TextPart], FIRST_ERROR]

    @property
    def text(self) -> str:
        """The whole text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatBody(GenerationBody):
    """POST /v1/chat/completions."""

    REFUSED: ClassVar = field_outcomes.CHAT

    messages: Annotated[list[ChatMessageBody], Field(min_length=1), FIRST_ERROR]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: Annotated[list[ToolBody], FIRST_ERROR] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedToolBody | None = None
    parallel_tool_calls: bool | None = None
    include_reasoning: bool | None = None
    reasoning_effort: EFFORTS | None = None
    prediction: PredictionBody | None = None


class CompletionBody(GenerationBody):
    """POST /v1/completions."""

    REFUSED: ClassVar = field_outcomes.COMPLETION

    prompt: str | Texts | Ids | ListsOfIds
    logprobs: int | None = None


class EmbeddingBody(StrictBody):
    """POST /v1/embeddings: `input`, or a conversation as vLLM takes it."""

    REFUSED: ClassVar = field_outcomes.EMBEDDING

    model: str | None = None
    input: str | Texts | Ids | ListsOfIds | None = None
    messages: Annotated[list[ChatMessageBody], Field(min_length=1), FIRST_ERROR] | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    pooling: Literal["last", "mean", "cls"] | None = None
    normalize: bool | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    cache_salt: str | None = None
    priority: int | None = None


Body = TypeVar("Body", bound=BaseModel)


def body_schema(cls: type[BaseModel]) -> dict[str, Any]:
    """Return what describes a body in the API description: it is read by hand, for our own
    errors."""
    schema = cls.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def body_of(cls: type[Body], data: dict[str, Any]) -> Body:
    """Return the checked body. Raises InvalidRequestError naming the field."""
    try:
        body = cls.model_validate(data)
    except ValidationError as error:
        raise as_invalid(error) from error
    if isinstance(body, GenerationBody) and body.stream_options and not body.stream:
        raise InvalidRequestError("stream_options needs stream true", field="stream_options")
    return body
