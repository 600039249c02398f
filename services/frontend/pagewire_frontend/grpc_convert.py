"""Between the public gRPC messages and plain data. Checks what the wire types cannot say; owns no
state."""

from collections.abc import Sequence
from typing import Any

from pagewire_frontend.engine import (
    ChatPrompt,
    GenerationRequest,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from pagewire_frontend.events import Closed, Delta, Event, Finished, FinishReason, Opened
from pagewire_frontend.model_registry import LoadedModel
from pagewire_protos.common.v1 import sampling_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_shared.beam import early_stopping_name
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling import SamplingParams
from pagewire_shared.sampling_convert import beam_from_message, sampling_from_message

_ROLES = {
    pb.CHAT_ROLE_SYSTEM: "system",
    pb.CHAT_ROLE_USER: "user",
    pb.CHAT_ROLE_ASSISTANT: "assistant",
    pb.CHAT_ROLE_TOOL: "tool",
}
_REASONS = {
    FinishReason.STOP: sampling_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: sampling_pb2.FINISH_REASON_LENGTH,
    FinishReason.ABORTED: sampling_pb2.FINISH_REASON_ABORTED,
    FinishReason.FAILED: sampling_pb2.FINISH_REASON_FAILED,
}


def model_name(message: Any) -> str | None:
    """Return the model that a request names, or None."""
    return message.model if message.HasField("model") else None


def chat_request(
    message: pb.ChatRequest, model: LoadedModel, timeout_seconds: float | None
) -> GenerationRequest:
    """Return the request behind a Chat call. Raises InvalidRequestError naming the field."""
    add = message.add_generation_prompt if message.HasField("add_generation_prompt") else True
    prompt = ChatPrompt(_chat_messages(message.messages), add_generation_prompt=add)
    return _request(message.options, model, prompt, timeout_seconds)


def complete_request(
    message: pb.CompleteRequest, model: LoadedModel, timeout_seconds: float | None
) -> GenerationRequest:
    """Return the request behind a Complete call. Raises InvalidRequestError naming the field."""
    kind = message.WhichOneof("prompt")
    if kind is None:
        raise InvalidRequestError("prompt is required: text or token_ids", field="prompt")
    prompt: Prompt = (
        TextPrompt(message.text) if kind == "text" else TokenPrompt(tuple(message.token_ids.ids))
    )
    return _request(message.options, model, prompt, timeout_seconds)


def tokenize_prompt(message: pb.TokenizeRequest) -> Prompt:
    """Return what a Tokenize call asks for. Raises InvalidRequestError naming the field."""
    kind = message.WhichOneof("input")
    if kind is None:
        raise InvalidRequestError("text or conversation is required", field="text")
    if kind == "text":
        special = message.add_special_tokens if message.HasField("add_special_tokens") else True
        return TextPrompt(message.text, add_special_tokens=special)
    talk = message.conversation
    add = talk.add_generation_prompt if talk.HasField("add_generation_prompt") else True
    return ChatPrompt(_chat_messages(talk.messages), add_generation_prompt=add)


def _chat_messages(messages: Sequence[pb.ChatMessage]) -> list[dict[str, str]]:
    if not messages:
        raise InvalidRequestError("messages must not be empty", field="messages")
    turns: list[dict[str, str]] = []
    for message in messages:
        if message.role not in _ROLES:
            raise InvalidRequestError(f"messages: no role {message.role}", field="messages")
        turn = {"role": _ROLES[message.role], "content": message.content}
        if message.HasField("name"):
            turn["name"] = message.name
        turns.append(turn)
    return turns


def _request(
    options: pb.GenerationOptions,
    model: LoadedModel,
    prompt: Prompt,
    timeout_seconds: float | None,
) -> GenerationRequest:
    return GenerationRequest(
        model=model,
        prompt=prompt,
        params=_params(options, model.defaults),
        tenant=options.tenant if options.HasField("tenant") else None,
        cache_salt=options.cache_salt if options.HasField("cache_salt") else None,
        priority=options.priority if options.HasField("priority") else 0,
        timeout_seconds=timeout_seconds,
    )


def _params(options: pb.GenerationOptions, defaults: SamplingParams) -> SamplingParams:
    changes: dict[str, Any] = {}
    for name in ("n", "best_of", "skip_special_tokens", "include_stop_str_in_output"):
        if options.HasField(name):
            changes[name] = getattr(options, name)
    if options.stop:
        changes["stop"] = tuple(options.stop)
    if options.HasField("beam_search"):
        beam = beam_from_message(options.beam_search)
        defaults = defaults.without_filters()
        changes["use_beam_search"] = True
        changes["length_penalty"] = beam.length_penalty
        changes["early_stopping"] = early_stopping_name(beam.early_stopping)
    return sampling_from_message(options.sampling, defaults=defaults.with_(**changes))


def event_fields(event: Event) -> dict[str, Any]:
    """Return the oneof field of ChatResponse and CompleteResponse for an event."""
    if isinstance(event, Delta):
        return {"delta": _delta(event)}
    if isinstance(event, Finished):
        return {"finished": _finished(event)}
    if isinstance(event, Opened):
        opened = pb.StreamOpened(
            request_id=event.request_id.hex(),
            model=event.model,
            prompt_token_ids=event.prompt_token_ids,
            seed=event.seed,
        )
        return {"opened": opened}
    return {"closed": _closed(event)}


def _delta(event: Delta) -> pb.ChoiceDelta:
    return pb.ChoiceDelta(
        choice=event.choice,
        first_position=event.first_position,
        token_ids=event.token_ids,
        text=event.text,
        logprobs=[
            pb.TokenLogprob(
                token_id=item.token_id,
                logprob=item.logprob,
                top=[pb.TopLogprob(token_id=i, logprob=value) for i, value in item.top],
            )
            for item in event.logprobs
        ],
    )


def _finished(event: Finished) -> pb.ChoiceFinished:
    message = pb.ChoiceFinished(choice=event.choice, reason=_REASONS[event.reason], text=event.text)
    if event.stop_string is not None:
        message.stop_string = event.stop_string
    elif event.stop_token_id is not None:
        message.stop_token_id = event.stop_token_id
    return message


def _closed(event: Closed) -> pb.StreamClosed:
    return pb.StreamClosed(
        usage=pb.Usage(
            prompt_tokens=event.usage.prompt_tokens,
            completion_tokens=event.usage.completion_tokens,
            cached_tokens=event.usage.cached_tokens,
        ),
        timings=pb.Timings(
            time_to_first_token=event.timings.first_token_seconds,
            total=event.timings.total_seconds,
            num_resumes=event.timings.num_resumes,
        ),
    )
