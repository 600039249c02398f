"""Converts the requests and answers of calls with many requests to and from messages."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.grpc_api import convert as grpc_convert
from pagewire_frontend.grpc_api import event_convert
from pagewire_frontend.grpc_api.convert import GrpcStreamOptions
from pagewire_frontend.prompts.generation_request import echo_text, without_output
from pagewire_frontend.session.choice_messages import ChoiceMessages
from pagewire_frontend.session.events import Closed, Delta, Event
from pagewire_frontend.session.session import Session
from pagewire_protos.frontend.v1 import batch_pb2 as pb
from pagewire_protos.frontend.v1 import inference_pb2
from pagewire_shared.errors import PagewireError
from pagewire_shared.rpc.errors import to_detail

Item = pb.BatchItem
Part = pb.BatchAnswer
Message = pb.GenerateBatchResponse

MESSAGE_BYTES: Final = 1024 * 1024
"""Size after which a message is sent and the next one begun."""
MAX_TOKENS: Final = 65_536
MAX_LOGPROBS: Final = 4_096
"""Limits of one delta; a larger one is split."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request asks for."""

    options: GrpcStreamOptions
    is_chat: bool


async def asked_of(
    engine: Engine, item: Item, seconds: float | None, params: grpc_convert.LastParams
) -> Asked:
    """Return what an item asks for. Raises the error that refuses it.

    Args:
        engine: Knows the models and bounds what is read at once.
        item: The request.
        seconds: Time for the request; None without a deadline.
        params: Reads the parameters.
    """
    if item.WhichOneof("request") == "chat":
        model = engine.models.find(grpc_convert.model_name(item.chat))
        chat = await grpc_convert.chat_request(
            item.chat, model, seconds, engine.prompt_end, params.read
        )
        return Asked(chat, is_chat=True)
    model = engine.models.find(grpc_convert.model_name(item.complete))
    async with engine.large_prompts.turn(current_tenant(), len(item.complete.token_ids.ids)):
        options = grpc_convert.complete_request(item.complete, model, seconds, params.read)
    return Asked(options, is_chat=False)


def error_part(index: int, error: PagewireError) -> Part:
    """Return what says that a request has no answer."""
    return pb.BatchAnswer(index=index, error=to_detail(error))


def answer_parts(index: int, session: Session, asked: Asked, prompt: str | None) -> list[Part]:
    """Return the answer of a session that is over, one event a part. Raises its error.

    Args:
        index: Number of the request in its call.
        session: The session.
        asked: What the request asks for.
        prompt: Text of the prompt of a conversation.
    """
    opened, options = session.opened(), asked.options
    echo = echo_text(options.request, opened.prompt_token_ids) if options.has_echo else None
    parts = [_part(index, event_convert.event_fields(opened, echo), prompt)]
    messages = ChoiceMessages(options.new_reader) if asked.is_chat else None
    for event in _events(session):
        shown = event if options.has_output else without_output(event)
        if shown is not None:
            read = [shown] if messages is None else messages.take(shown)
            parts += [_part(index, event_convert.event_fields(one)) for one in read]
    return parts


def packed(parts: Iterator[Part]) -> Iterator[Message]:
    """Yield messages of about MESSAGE_BYTES at most; neighbouring parts of an answer are joined."""
    message, num_bytes = pb.GenerateBatchResponse(), 0
    for part in parts:
        size = part.ByteSize()
        if num_bytes and num_bytes + size > MESSAGE_BYTES:
            yield message
            message, num_bytes = pb.GenerateBatchResponse(), 0
        num_bytes += size
        answers = message.answers
        if answers and answers[-1].index == part.index:
            answers[-1].MergeFrom(part)
        else:
            answers.append(part)
    if num_bytes:
        yield message


def _part(index: int, fields: dict[str, Any], prompt: str | None = None) -> Part:
    event = inference_pb2.CompleteResponse(**fields)
    return pb.BatchAnswer(index=index, events=[event], prompt=prompt)


def _events(session: Session) -> list[Event]:
    """Return all events of a session that is over, with large deltas split. Raises its error."""
    events: list[Event] = []
    while not (events and isinstance(events[-1], Closed)):
        for event in session.take():
            events += _split(event) if isinstance(event, Delta) else [event]
    return events


def _split(delta: Delta) -> list[Delta]:
    """Return a delta in parts that one message can carry; all the text is in the first."""
    length = MAX_LOGPROBS if delta.logprobs else MAX_TOKENS
    if len(delta.token_ids) <= length:
        return [delta]
    return [
        Delta(
            delta.choice,
            delta.first_position + begin,
            delta.token_ids[begin : begin + length],
            "" if begin else delta.text,
            delta.logprobs[begin : begin + length],
        )
        for begin in range(0, len(delta.token_ids), length)
    ]
