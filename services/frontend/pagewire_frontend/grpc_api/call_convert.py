"""Reads the requests of streamed calls, and of those that are made again."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.grpc_api import convert as grpc_convert
from pagewire_frontend.grpc_api import event_convert
from pagewire_frontend.grpc_api.answers import Shown
from pagewire_frontend.grpc_api.convert import GrpcStreamOptions
from pagewire_frontend.session.choice_messages import ChoiceMessages
from pagewire_frontend.session.events import Event
from pagewire_protos.frontend.v1 import inference_pb2 as pb


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A request, and what makes the messages of its events."""

    asked: GrpcStreamOptions
    shown: Shown


async def read_chat(
    engine: Engine, request: pb.ChatRequest, timeout_seconds: float | None
) -> ReadCall:
    """Return the request of a Chat call. Raises InvalidRequestError naming the field."""
    model = engine.models.find(grpc_convert.model_name(request))
    asked = await grpc_convert.chat_request(request, model, timeout_seconds, engine.prompt_end)
    messages = ChoiceMessages(asked.new_reader)

    def shown(event: Event, echo: str | None) -> Iterator[pb.ChatResponse]:
        for one in messages.take(event):
            yield pb.ChatResponse(**event_convert.event_fields(one, echo))

    return ReadCall(asked, shown)


async def read_completion(
    engine: Engine, request: pb.CompleteRequest, timeout_seconds: float | None
) -> ReadCall:
    """Return the request of a Complete call. Raises InvalidRequestError naming the field."""
    model = engine.models.find(grpc_convert.model_name(request))
    num_tokens = len(request.token_ids.ids)
    async with engine.large_prompts.turn(current_tenant(), num_tokens):
        asked = grpc_convert.complete_request(request, model, timeout_seconds)

    def shown(event: Event, echo: str | None) -> Iterator[pb.CompleteResponse]:
        yield pb.CompleteResponse(**event_convert.event_fields(event, echo))

    return ReadCall(asked, shown)


_KINDS: Final = {kind.DESCRIPTOR.full_name: kind for kind in (pb.ChatRequest, pb.CompleteRequest)}
CALL_PATHS: Final = tuple(_KINDS)
"""Paths of the recipes of calls: the full names of their requests."""


async def read_again(engine: Engine, path: str, body: bytes) -> ReadCall:
    """Return the request in a recipe. Raises PagewireError."""
    request = _KINDS[path].FromString(body)
    if isinstance(request, pb.ChatRequest):
        return await read_chat(engine, request, None)
    return await read_completion(engine, request, None)
