"""Converts the events of a stream to the public gRPC messages."""

from collections.abc import Sequence
from typing import Any

from pagewire_frontend.message.pieces import ToolCallDelta
from pagewire_frontend.session.choice_messages import MessageDelta, MessageFinished
from pagewire_frontend.session.events import (
    Closed,
    Delta,
    Event,
    Finished,
    FinishReason,
    Opened,
    PromptLogprobs,
    Usage,
)
from pagewire_frontend.session.journal_records import TokenLogprob
from pagewire_protos.common.v1 import sampling_pb2, usage_pb2
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.frontend.v1 import tools_pb2

_REASONS = {
    FinishReason.STOP: sampling_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: sampling_pb2.FINISH_REASON_LENGTH,
    FinishReason.ABORTED: sampling_pb2.FINISH_REASON_ABORTED,
    FinishReason.FAILED: sampling_pb2.FINISH_REASON_FAILED,
}


def event_fields(
    event: Event | MessageDelta | MessageFinished, echo: str | None = None
) -> dict[str, Any]:
    """Return the oneof field of ChatResponse and CompleteResponse for an event.

    Args:
        echo: The text before the answer, shown with the first event; None unless asked for.
    """
    if isinstance(event, MessageDelta):
        return {"delta": _message_delta(event)}
    if isinstance(event, MessageFinished):
        finished = _finished(event.finished)
        if event.has_called:
            finished.reason = sampling_pb2.FINISH_REASON_TOOL_CALLS
        return {"finished": finished}
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
            echo=echo,
        )
        return {"opened": opened}
    if isinstance(event, PromptLogprobs):
        piece = pb.PromptLogprobs(
            first_position=event.first_position, logprobs=_logprobs(event.logprobs)
        )
        return {"prompt_logprobs": piece}
    return {"closed": _closed(event)}


def usage_message(usage: Usage) -> pb.Usage:
    """Return token counts."""
    return pb.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        cached_tokens=usage.cached_tokens,
        cached_tokens_by_tier=[
            usage_pb2.CachedTokens(tier=tier, num_tokens=num_tokens)
            for tier, num_tokens in usage.cached_tokens_by_tier.items()
        ],
        accepted_prediction_tokens=usage.predicted.num_accepted if usage.predicted else 0,
        rejected_prediction_tokens=usage.predicted.num_rejected if usage.predicted else 0,
        weights_version=usage.weights_version,
    )


def _delta(event: Delta) -> pb.ChoiceDelta:
    return pb.ChoiceDelta(
        choice=event.choice,
        first_position=event.first_position,
        token_ids=event.token_ids,
        text=event.text,
        logprobs=_logprobs(event.logprobs),
    )


def _message_delta(event: MessageDelta) -> pb.ChoiceDelta:
    message, pieces = _delta(event.delta), event.pieces
    message.text = pieces.content
    message.reasoning = pieces.reasoning
    message.tool_calls.extend(_call_delta(call) for call in pieces.calls)
    return message


def _call_delta(call: ToolCallDelta) -> tools_pb2.ToolCallDelta:
    return tools_pb2.ToolCallDelta(
        index=call.index, id=call.call_id, name=call.name, arguments=call.arguments
    )


def _logprobs(items: Sequence[TokenLogprob]) -> list[pb.TokenLogprob]:
    return [
        pb.TokenLogprob(
            token_id=item.token_id,
            logprob=item.logprob,
            top=[pb.TopLogprob(token_id=i, logprob=value) for i, value in item.top],
            rank=item.rank,
        )
        for item in items
    ]


def _finished(event: Finished) -> pb.ChoiceFinished:
    message = pb.ChoiceFinished(choice=event.choice, reason=_REASONS[event.reason], text=event.text)
    if event.stop_string is not None:
        message.stop_string = event.stop_string
    elif event.stop_token_id is not None:
        message.stop_token_id = event.stop_token_id
    return message


def _closed(event: Closed) -> pb.StreamClosed:
    return pb.StreamClosed(
        usage=usage_message(event.usage),
        timings=pb.Timings(
            time_to_first_token=event.timings.first_token_seconds,
            total=event.timings.total_seconds,
            num_resumes=event.timings.num_resumes,
            num_recoveries=event.timings.num_recoveries,
        ),
    )
