"""Converts public gRPC messages to plain data. Checks constraints that the wire types cannot
express."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf import struct_pb2

from pagewire_frontend.access.api_keys import tenant_of
from pagewire_frontend.chat.plan import plan_message
from pagewire_frontend.chat.tool_use import ToolUse
from pagewire_frontend.engine.embedding import Embeddings, check_num_inputs, embed_requests
from pagewire_frontend.engine.request_fit import check_num_ids
from pagewire_frontend.grpc_api.chat_convert import chat_turns, tool_use, tools_of
from pagewire_frontend.grpc_api.event_convert import usage_message
from pagewire_frontend.message.pieces import MessageReader, PlainReader
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.models.template_arguments import checked_arguments
from pagewire_frontend.prompts.generation_request import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    TextPrompt,
    TokenPrompt,
    check_continuation,
)
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.errors import InvalidRequestError, PagewireError
from pagewire_shared.sampling.beam import early_stopping_name
from pagewire_shared.sampling.convert import (
    beam_from_message,
    pooling_from_message,
    sampling_from_message,
)
from pagewire_shared.sampling.params import SamplingParams, field_names
from pagewire_shared.sampling.pooling import PoolingParams
from pagewire_shared.sampling.structured_outputs import FIELD


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcStreamOptions:
    """A request, and the parts of its stream that are shown.

    Attributes:
        has_echo: Shows the text before the answer.
        is_final_only: Shows the text of a choice when it ends.
        new_reader: Makes a reader of the text of one choice.
        has_tool_grammar: The output is held to a grammar made of the client's tools.
    """

    request: GenerationRequest
    has_echo: bool
    has_output: bool = True
    is_final_only: bool = False
    new_reader: Callable[[], MessageReader] = PlainReader
    has_tool_grammar: bool = False

    def as_given(self, error: PagewireError) -> PagewireError:
        """Return `error` with the request's name of its field, also in the message."""
        if self.has_tool_grammar and error.field == FIELD:
            error.message = error.message.replace(FIELD, "tools")
            error.field = "tools"
        return error


def model_name(message: Any) -> str | None:
    """Return the model named in a request, or None."""
    return message.model if message.HasField("model") else None


def params_of(options: pb.GenerationOptions, defaults: SamplingParams) -> SamplingParams:
    """Return the sampling parameters of options. Raises InvalidRequestError naming the field."""
    names = field_names()
    changes = {one.name: value for one, value in options.ListFields() if one.name in names}
    if options.HasField("beam_search"):
        beam = beam_from_message(options.beam_search)
        defaults = defaults.without_filters()
        changes["use_beam_search"] = True
        changes["length_penalty"] = beam.length_penalty
        changes["early_stopping"] = early_stopping_name(beam.early_stopping)
    return sampling_from_message(options.sampling, defaults=defaults.with_(**changes))


ReadParams = Callable[[pb.GenerationOptions, SamplingParams], SamplingParams]
"""What `params_of` is."""


class LastParams:
    """Reads parameters as `params_of`; equal options of requests in a row are read once."""

    def __init__(self) -> None:
        self._options = b""
        self._defaults: SamplingParams | None = None
        self._params: SamplingParams | None = None

    def read(self, options: pb.GenerationOptions, defaults: SamplingParams) -> SamplingParams:
        """Return the sampling parameters. Raises InvalidRequestError naming the field."""
        given = options.SerializeToString()
        if self._params is None or given != self._options or defaults is not self._defaults:
            self._params = params_of(options, defaults)
            self._options, self._defaults = given, defaults
        return self._params


async def chat_request(
    message: pb.ChatRequest,
    model: LoadedModel,
    timeout_seconds: float | None,
    prompt_end: Callable[[LoadedModel, Mapping[str, Any] | None], Awaitable[str]],
    read_params: ReadParams = params_of,
) -> GrpcStreamOptions:
    """Return the request of a Chat call; `prompt_end` is Engine.prompt_end. Raises
    InvalidRequestError naming the field."""
    goes_on = message.continue_final_message
    has_add = message.HasField("add_generation_prompt")
    add = message.add_generation_prompt if has_add else not goes_on
    check_continuation(add, goes_on)
    turns = chat_turns(message.messages)
    arguments = _template_arguments(message.template_arguments)
    plan = plan_message(
        model,
        read_params(message.options, model.defaults),
        tool_use(message),
        prompt_end=await prompt_end(model, arguments),
        opens_turn=add,
    )
    prompt = ChatPrompt(
        turns,
        add_generation_prompt=add,
        template_arguments=arguments,
        continue_final_message=goes_on,
        tools=plan.template_tools,
    )
    return GrpcStreamOptions(
        request=replace(
            _request(message.options, model, prompt, plan.params, timeout_seconds),
            marks=plan.marks,
            prediction=message.prediction if message.HasField("prediction") else None,
        ),
        has_echo=message.options.echo,
        is_final_only=message.options.final_only,
        new_reader=plan.new_reader,
        has_tool_grammar=plan.has_grammar,
    )


def complete_request(
    message: pb.CompleteRequest,
    model: LoadedModel,
    timeout_seconds: float | None,
    read_params: ReadParams = params_of,
) -> GrpcStreamOptions:
    """Return the request of a Complete call. Raises InvalidRequestError naming the field."""
    kind = message.WhichOneof("prompt")
    if kind is None:
        raise InvalidRequestError("prompt is required: text or token_ids", field="prompt")
    check_num_ids(len(message.token_ids.ids), "token_ids")
    special = message.add_special_tokens if message.HasField("add_special_tokens") else True
    prompt: Prompt = (
        TextPrompt(message.text, add_special_tokens=special)
        if kind == "text"
        else TokenPrompt(tuple(message.token_ids.ids))
    )
    options, has_output = message.options, True
    if options.echo and options.sampling.HasField("max_tokens") and not options.sampling.max_tokens:
        # Only the prompt is wanted: one token is generated, and not shown.
        options, has_output = pb.GenerationOptions(), False
        options.CopyFrom(message.options)
        options.sampling.max_tokens = 1
    params = read_params(options, model.defaults)
    return GrpcStreamOptions(
        request=_request(options, model, prompt, params, timeout_seconds),
        has_echo=options.echo,
        has_output=has_output,
        is_final_only=options.final_only,
    )


def tokenize_prompt(message: pb.TokenizeRequest, model: LoadedModel) -> Prompt:
    """Return the prompt of a Tokenize call. Raises InvalidRequestError naming the field."""
    kind = message.WhichOneof("input")
    if kind is None:
        raise InvalidRequestError("text or conversation is required", field="text")
    if kind == "text":
        special = message.add_special_tokens if message.HasField("add_special_tokens") else True
        return TextPrompt(message.text, add_special_tokens=special)
    return conversation_prompt(message.conversation, model, adds_by_default=True)


def conversation_prompt(
    talk: pb.Conversation, model: LoadedModel, *, adds_by_default: bool
) -> ChatPrompt:
    """Return the prompt of a conversation. Raises InvalidRequestError naming the field."""
    has_add = talk.HasField("add_generation_prompt")
    add = talk.add_generation_prompt if has_add else adds_by_default
    turns, tools = chat_turns(talk.messages), tools_of(talk.tools)
    # Any mode that shows the tools will do; this one needs no parser of calls.
    use = ToolUse(tools=tools, mode="required" if tools else "none")
    plan = plan_message(model, model.defaults, use)
    return ChatPrompt(turns, add_generation_prompt=add, tools=plan.template_tools)


def _template_arguments(message: struct_pb2.Struct) -> dict[str, Any] | None:
    """Return the values as a template expects them: a whole number as int, which a Struct holds as
    float."""
    for name, value in message.fields.items():
        if value.WhichOneof("kind") is None:
            raise InvalidRequestError(
                f"template_arguments: {name[:100]!r} has no value", field="template_arguments"
            )
    values = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in message.items()
    }
    return checked_arguments("template_arguments", values)


def _request(
    options: pb.GenerationOptions,
    model: LoadedModel,
    prompt: Prompt,
    params: SamplingParams,
    timeout_seconds: float | None,
) -> GenerationRequest:
    return GenerationRequest(
        model=model,
        prompt=prompt,
        params=params,
        tenant=tenant_of(options.tenant if options.HasField("tenant") else None),
        cache_salt=options.cache_salt if options.HasField("cache_salt") else None,
        priority=options.priority if options.HasField("priority") else 0,
        timeout_seconds=timeout_seconds,
    )


def embedding_requests(
    message: pb.EmbedRequest, model: LoadedModel, timeout_seconds: float | None
) -> list[GenerationRequest]:
    """Return one request per input. Raises InvalidRequestError naming the field."""
    check_num_inputs(len(message.inputs))
    check_num_ids(sum(len(item.token_ids.ids) for item in message.inputs), "input")
    pooling = pooling_from_message(message.pooling)
    special = message.add_special_tokens if message.HasField("add_special_tokens") else True
    return embed_requests(
        model,
        [input_prompt(item, model, special) for item in message.inputs],
        PoolingParams(
            pooling=pooling.pooling,
            normalize=pooling.normalize,
            dimensions=message.dimensions if message.HasField("dimensions") else None,
            truncate_prompt_tokens=(
                message.truncate_prompt_tokens
                if message.HasField("truncate_prompt_tokens")
                else None
            ),
        ),
        tenant=tenant_of(message.tenant if message.HasField("tenant") else None),
        cache_salt=message.cache_salt if message.HasField("cache_salt") else None,
        priority=message.priority,
        timeout_seconds=timeout_seconds,
    )


def embedding_response(model: str, outcome: Embeddings) -> pb.EmbedResponse:
    """Return the response message."""
    return pb.EmbedResponse(
        model=model,
        embeddings=[pb.Embedding(values=vector.tolist()) for vector in outcome.vectors],
        usage=usage_message(outcome.usage),
    )


def input_prompt(item: pb.EmbedInput, model: LoadedModel, add_special_tokens: bool) -> Prompt:
    """Return one input. Raises InvalidRequestError naming input for an empty one."""
    match item.WhichOneof("input"):
        case "text":
            return TextPrompt(item.text, add_special_tokens)
        case "token_ids":
            return TokenPrompt(tuple(item.token_ids.ids))
        case "conversation":
            return conversation_prompt(item.conversation, model, adds_by_default=False)
    raise InvalidRequestError("an input is empty: text, token_ids or conversation", field="input")
