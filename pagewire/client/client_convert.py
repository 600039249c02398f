"""Converts requests and events of the public API to and from messages of pagewire.frontend.v1."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypedDict

from pagewire.client.embeddings import Embeddings
from pagewire.client.events import (
    Closed,
    Delta,
    Event,
    Finished,
    FinishReason,
    Message,
    Opened,
    PromptLogprobs,
    Timings,
    TokenLogprob,
    Usage,
)
from pagewire.client.tool_convert import ToolChoice, add_tools, call_deltas, call_messages
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2
from pagewire_shared.errors import InternalError, InvalidRequestError
from pagewire_shared.names.part_types import TEXT_PARTS, refused_part
from pagewire_shared.sampling.convert import (
    beam_to_message,
    pooling_to_message,
    sampling_to_message,
)
from pagewire_shared.sampling.params import SamplingParams, field_names
from pagewire_shared.sampling.pooling import PoolingParams

# The default of vLLM's offline API when no parameters are given.
DEFAULT_MAX_TOKENS = 16

_ROLES = {
    "system": inference_pb2.CHAT_ROLE_SYSTEM,
    "user": inference_pb2.CHAT_ROLE_USER,
    "assistant": inference_pb2.CHAT_ROLE_ASSISTANT,
    "tool": inference_pb2.CHAT_ROLE_TOOL,
}
_REASONS: dict[sampling_pb2.FinishReason, FinishReason] = {
    sampling_pb2.FINISH_REASON_STOP: "stop",
    sampling_pb2.FINISH_REASON_LENGTH: "length",
    sampling_pb2.FINISH_REASON_ABORTED: "abort",
    sampling_pb2.FINISH_REASON_FAILED: "error",
    sampling_pb2.FINISH_REASON_TOOL_CALLS: "tool_calls",
}
_OPTIONS = set(field_names()).intersection(
    inference_pb2.GenerationOptions.DESCRIPTOR.fields_by_name
)
"""Parameters that stay with the frontend, without those of a beam search."""

Sampling = SamplingParams | Mapping[str, Any] | None
"""All parameters, some of them (the model's defaults fill the rest), or None for 16 tokens."""


class ChatOptions(TypedDict, total=False):
    """Options of a chat besides turns and sampling.

    Attributes:
        model: Served name; may be left out when only one is served.
        add_generation_prompt: Open an assistant turn; the default unless the last turn is
            continued.
        continue_final_message: Leave the last turn open and continue it.
        chat_template_kwargs: Further values for the model's chat template, at most 16.
        tools: Functions that the model may call, in OpenAI's form: {"type": "function", "function":
            {"name": ..., "description": ..., "parameters": a JSON schema, "strict": ...}}.
        tool_choice: "none", "auto", "required" or {"type": "function", "function": {"name": ...}};
            by default "auto" with tools.
        parallel_tool_calls: Whether an answer may have several calls; the default is True.
        echo: Return the text of the continued turn in Opened.
        final_only: Get all output of a choice in one delta when the choice ends.
        priority: From -100 to 100; lower is earlier.
    """

    model: str | None
    priority: int
    add_generation_prompt: bool | None
    continue_final_message: bool
    chat_template_kwargs: Mapping[str, Any] | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: ToolChoice | None
    parallel_tool_calls: bool | None
    echo: bool
    final_only: bool


def given_params(sampling: Sampling) -> SamplingParams:
    """Return checked parameters. Raises InvalidRequestError or, for a wrong name, TypeError."""
    if isinstance(sampling, SamplingParams):
        return sampling
    return SamplingParams(**(sampling or {}))


def options_message(sampling: Sampling) -> inference_pb2.GenerationOptions:
    """Return the options; fields that `sampling` does not name stay absent."""
    if sampling is None:
        sampling = {"max_tokens": DEFAULT_MAX_TOKENS}
    params = given_params(sampling)
    message = sampling_to_message(params)
    beam = params.beam
    if not isinstance(sampling, SamplingParams):
        for present, _ in message.ListFields():
            if present.name not in sampling:
                message.ClearField(present.name)
    return inference_pb2.GenerationOptions(
        sampling=message,
        beam_search=beam_to_message(beam) if beam else None,
        **{name: getattr(params, name) for name in _OPTIONS},
    )


def complete_request(
    prompt: str | Sequence[int],
    sampling: Sampling,
    model: str | None,
    add_special_tokens: bool = True,
    echo: bool = False,
    final_only: bool = False,
    priority: int = 0,
) -> inference_pb2.CompleteRequest:
    """Return the request for a text or a list of token ids."""
    request = inference_pb2.CompleteRequest(
        model=model, options=options_message(sampling), add_special_tokens=add_special_tokens
    )
    if echo:
        request.options.echo = True
    if final_only:
        request.options.final_only = True
    if priority:
        request.options.priority = priority
    if isinstance(prompt, str):
        request.text = prompt
        return request
    try:
        request.token_ids.CopyFrom(inference_pb2.TokenIds(ids=prompt))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"prompt: token ids must be integers from 0 to 2**32 - 1 ({error})", field="prompt"
        ) from error
    return request


def chat_request(
    messages: Sequence[Message | Mapping[str, Any]],
    sampling: Sampling,
    asked: ChatOptions,
) -> inference_pb2.ChatRequest:
    """Return the request for a conversation."""
    unknown = sorted(asked.keys() - ChatOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"chat() got an unexpected keyword argument {unknown[0]!r}")
    request = inference_pb2.ChatRequest(
        model=asked.get("model"),
        messages=[message_message(message) for message in messages],
        options=options_message(sampling),
        continue_final_message=asked.get("continue_final_message", False),
    )
    if asked.get("echo"):
        request.options.echo = True
    if asked.get("final_only"):
        request.options.final_only = True
    priority = asked.get("priority")
    if priority:
        request.options.priority = priority
    opens = asked.get("add_generation_prompt")
    if opens is not None:
        request.add_generation_prompt = opens
    add_tools(
        request, asked.get("tools"), asked.get("tool_choice"), asked.get("parallel_tool_calls")
    )
    try:
        request.template_arguments.update(dict(asked.get("chat_template_kwargs") or {}))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"chat_template_kwargs must map names to values of JSON ({error})",
            field="chat_template_kwargs",
        ) from error
    return request


def message_message(message: Message | Mapping[str, Any]) -> inference_pb2.ChatMessage:
    """Return the wire form of a turn given as Message or as {"role": ..., "content": ...}."""
    if not isinstance(message, Message):
        message = _message_from(message)
    if message.role not in _ROLES:
        raise InvalidRequestError(
            f"messages: role {message.role!r} is none of {', '.join(_ROLES)}", field="messages"
        )
    return inference_pb2.ChatMessage(
        role=_ROLES[message.role],
        content=_text_of(message.content),
        name=message.name,
        tool_calls=call_messages(message.tool_calls),
        tool_call_id=message.tool_call_id,
        reasoning=message.reasoning,
    )


def _text_of(content: Any) -> str:
    """Return a text, or those of a list of text parts, which OpenAI's form may have."""
    if isinstance(content, str):
        return content
    texts = []
    for given in content if isinstance(content, list | tuple) else [None]:
        part = given if isinstance(given, Mapping) else {}
        kind, text = part.get("type"), part.get("text")
        if isinstance(kind, str) and kind not in TEXT_PARTS:
            raise InvalidRequestError(f"messages: {refused_part(kind)}", field="messages")
        if kind is None or not isinstance(text, str):
            raise InvalidRequestError(
                "messages: content must be a text or a list of text parts", field="messages"
            )
        texts.append(text)
    return "".join(texts)


def _message_from(data: Mapping[str, Any]) -> Message:
    """Return a turn in OpenAI's form, where an assistant that calls tools may have no content;
    `reasoning_content` is accepted as another name of `reasoning`."""
    try:
        fields = {name: value for name, value in dict(data).items() if value is not None}
        if fields.get("tool_calls"):
            fields.setdefault("content", "")
        if "reasoning_content" in fields:
            fields["reasoning"] = fields.pop("reasoning_content")
        return Message(**fields)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            "messages: a turn has role, content and perhaps name, tool_calls, tool_call_id and "
            f"reasoning, got {_shown(data)}",
            field="messages",
        ) from error


def _shown(data: object) -> str:
    return str(sorted(data) if isinstance(data, Mapping) else data)


def event_from_message(
    message: inference_pb2.CompleteResponse | inference_pb2.ChatResponse,
) -> Event:
    """Return the event in a streamed message. Raises InternalError for an unknown event."""
    match message.WhichOneof("event"):
        case "delta":
            return _delta(message.delta)
        case "finished":
            return _finished(message.finished)
        case "prompt_logprobs":
            piece = message.prompt_logprobs
            return PromptLogprobs(piece.first_position, _logprobs(piece.logprobs))
        case "opened":
            opened = message.opened
            return Opened(
                opened.request_id,
                opened.model,
                tuple(opened.prompt_token_ids),
                opened.seed,
                opened.echo if opened.HasField("echo") else None,
                opened.stream_id,
            )
        case "closed":
            return _closed(message.closed)
    raise InternalError("the server sent an event that this client does not know")


def _delta(delta: inference_pb2.ChoiceDelta) -> Delta:
    return Delta(
        delta.choice,
        delta.first_position,
        list(delta.token_ids),
        delta.text,
        _logprobs(delta.logprobs),
        delta.reasoning,
        call_deltas(delta.tool_calls),
    )


def _logprobs(entries: Iterable[inference_pb2.TokenLogprob]) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(
            entry.token_id,
            entry.logprob,
            tuple((top.token_id, top.logprob) for top in entry.top),
            entry.rank,
        )
        for entry in entries
    )


def _finished(finished: inference_pb2.ChoiceFinished) -> Finished:
    stop: str | int | None = None
    match finished.WhichOneof("stop"):
        case "stop_string":
            stop = finished.stop_string
        case "stop_token_id":
            stop = finished.stop_token_id
    reason = _REASONS.get(finished.reason, "error")
    return Finished(finished.choice, reason, finished.text, stop)


def usage_from_message(usage: inference_pb2.Usage) -> Usage:
    """Return the token counts in a message."""
    return Usage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.cached_tokens,
        {entry.tier: entry.num_tokens for entry in usage.cached_tokens_by_tier},
        usage.weights_version,
    )


def _closed(closed: inference_pb2.StreamClosed) -> Closed:
    usage, timings = closed.usage, closed.timings
    return Closed(
        usage_from_message(usage),
        Timings(
            timings.time_to_first_token,
            timings.total,
            timings.num_resumes,
            timings.num_recoveries,
        ),
    )


EmbedInput = str | Sequence[int] | Sequence[Message | Mapping[str, Any]]
"""A text, token ids or a conversation."""


def embed_request(
    inputs: EmbedInput | Sequence[EmbedInput],
    pooling: PoolingParams | None,
    model: str | None,
    add_special_tokens: bool = True,
) -> inference_pb2.EmbedRequest:
    """Return the request for one input or a list of them. Raises InvalidRequestError."""
    request = inference_pb2.EmbedRequest(
        model=model,
        inputs=input_messages(inputs),
        add_special_tokens=add_special_tokens,
    )
    if pooling is not None:
        request.pooling.CopyFrom(pooling_to_message(pooling))
        if pooling.dimensions is not None:
            request.dimensions = pooling.dimensions
        if pooling.truncate_prompt_tokens is not None:
            request.truncate_prompt_tokens = pooling.truncate_prompt_tokens
    return request


def input_messages(
    inputs: EmbedInput | Sequence[EmbedInput],
) -> list[inference_pb2.EmbedInput]:
    """Return the messages of one input or a list of them. Raises InvalidRequestError."""
    return [_input_message(item, index) for index, item in enumerate(_listed(inputs))]


def embeddings_from_message(response: inference_pb2.EmbedResponse) -> Embeddings:
    """Return the vectors in an answer."""
    return Embeddings(
        response.model,
        [list(embedding.values) for embedding in response.embeddings],
        usage_from_message(response.usage),
    )


def _listed(inputs: Any) -> list[Any]:
    """Return the inputs as a list; a sequence of integers or turns is one input."""
    if isinstance(inputs, str):
        return [inputs]
    listed = list(inputs)
    is_one = bool(listed) and isinstance(listed[0], Integral | Message | Mapping)
    return [listed] if is_one else listed


def _input_message(item: Any, index: int) -> inference_pb2.EmbedInput:
    if isinstance(item, str):
        return inference_pb2.EmbedInput(text=item)
    if isinstance(item, Sequence) and item and isinstance(item[0], Message | Mapping):
        turns = [message_message(turn) for turn in item]
        return inference_pb2.EmbedInput(conversation=inference_pb2.Conversation(messages=turns))
    try:
        return inference_pb2.EmbedInput(token_ids=inference_pb2.TokenIds(ids=list(item)))
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"input {index} is neither a text nor a conversation nor token ids from 0 to "
            f"2**32 - 1 ({error})",
            field="input",
        ) from error
