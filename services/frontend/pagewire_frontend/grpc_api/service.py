"""The public gRPC API of a frontend. Thin: messages in, engine, messages out."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Final

import grpc.aio

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.engine.embedding import embed
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.engine.scoring import score
from pagewire_frontend.grpc_api import convert as grpc_convert
from pagewire_frontend.grpc_api import event_convert, pooling_convert
from pagewire_frontend.grpc_api.adapter_service import AdapterService
from pagewire_frontend.grpc_api.admin_service import AdminService
from pagewire_frontend.grpc_api.batch_service import BatchService
from pagewire_frontend.grpc_api.convert import GrpcStreamOptions
from pagewire_frontend.grpc_api.explain_service import ExplainPeer, ExplainService
from pagewire_frontend.grpc_api.stall_watch import STALLED, StallWatch
from pagewire_frontend.metrics.timeline import timeline_header
from pagewire_frontend.prompts.generation_request import echo_text, without_output
from pagewire_frontend.request_label import IDEMPOTENCY_KEY, LABEL, label_in
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.session.choice_messages import ChoiceMessages
from pagewire_frontend.session.events import Closed, Delta, Event, Finished
from pagewire_frontend.session.reader_turns import ReaderTurns
from pagewire_frontend.traces.parent import PARENT, parent_in
from pagewire_protos.frontend.v1 import (
    adapters_pb2,
    adapters_pb2_grpc,
    batch_pb2,
    batch_pb2_grpc,
    explain_pb2,
    explain_pb2_grpc,
    inference_pb2_grpc,
)
from pagewire_protos.frontend.v1 import inference_pb2 as pb
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_shared.errors import DeadlineError, InvalidRequestError, PagewireError

MAX_TOKENS: Final = 65_536
MAX_LOGPROBS: Final = 4_096
"""Limits of a merged delta; a full delta is given before the choice ends."""


class FinalDeltas:
    """Holds back the deltas of one stream."""

    def __init__(self) -> None:
        self._held: dict[int, Delta] = {}

    def take(self, event: Event) -> list[Event]:
        """Return the events to show now that `event` has come, in order."""
        if isinstance(event, Delta):
            return self._hold(event)
        if isinstance(event, Finished):
            held = self._held.pop(event.choice, None)
            return [event] if held is None else [held, event]
        return [event]

    def _hold(self, delta: Delta) -> list[Event]:
        held = self._held.get(delta.choice)
        if held is None:
            self._held[delta.choice] = delta
            return []
        if (
            len(held.token_ids) + len(delta.token_ids) > MAX_TOKENS
            or len(held.logprobs) + len(delta.logprobs) > MAX_LOGPROBS
        ):
            self._held[delta.choice] = delta
            return [held]
        held.token_ids.extend(delta.token_ids)
        held.logprobs.extend(delta.logprobs)
        held.text += delta.text
        return []


SERVICE_NAMES = (
    pb.DESCRIPTOR.services_by_name["InferenceService"].full_name,
    batch_pb2.DESCRIPTOR.services_by_name["BatchService"].full_name,
    admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name,
    adapters_pb2.DESCRIPTOR.services_by_name["AdapterService"].full_name,
    explain_pb2.DESCRIPTOR.services_by_name["ExplainService"].full_name,
)

TIMELINE_METADATA_KEY = "pagewire-timeline"
"""Trailing metadata key of JSON with the timeline of each choice."""

Context = grpc.aio.ServicerContext[Any, Any]


class InferenceService(inference_pb2_grpc.InferenceServiceServicer):
    """Text or token ids in, a stream out."""

    def __init__(self, engine: Engine, *, stall_seconds: float) -> None:
        """Create the inference service.

        Args:
            engine: Opens the sessions.
            stall_seconds: Time after which a client that takes nothing is cut.
        """
        self._engine = engine
        self._stalls = StallWatch(stall_seconds)
        self._turns = ReaderTurns()

    async def Chat(
        self, request: pb.ChatRequest, context: Context
    ) -> AsyncIterator[pb.ChatResponse]:
        """Answer a conversation."""
        model = self._engine.models.find(grpc_convert.model_name(request))
        asked = await grpc_convert.chat_request(
            request, model, context.time_remaining(), self._engine.prompt_end
        )
        messages = ChoiceMessages(asked.new_reader)
        async with aclosing(self._stream(asked, context)) as events:
            async for event, echo in events:
                for shown in messages.take(event):
                    yield pb.ChatResponse(**event_convert.event_fields(shown, echo))

    async def Complete(
        self, request: pb.CompleteRequest, context: Context
    ) -> AsyncIterator[pb.CompleteResponse]:
        """Continue a text or token ids."""
        model = self._engine.models.find(grpc_convert.model_name(request))
        num_tokens = len(request.token_ids.ids)
        async with self._engine.large_prompts.turn(current_tenant(), num_tokens):
            asked = grpc_convert.complete_request(request, model, context.time_remaining())
        async with aclosing(self._stream(asked, context)) as events:
            async for event, echo in events:
                yield pb.CompleteResponse(**event_convert.event_fields(event, echo))

    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        """Turn inputs into vectors."""
        model = self._engine.models.find(grpc_convert.model_name(request))
        asked = grpc_convert.embedding_requests(request, model, context.time_remaining())
        return grpc_convert.embedding_response(model.shown_name, await embed(self._engine, asked))

    async def Pool(self, request: pb.PoolRequest, context: Context) -> pb.PoolResponse:
        """Compute vectors, vectors of single tokens, or classes."""
        model = self._engine.models.find(grpc_convert.model_name(request))
        task = pooling_convert.pool_task(request, model)
        asked = pooling_convert.pool_requests(request, model, task, context.time_remaining())
        found = await embed(self._engine, asked)
        return pooling_convert.pool_response(request, model, task, found)

    async def Score(self, request: pb.ScoreRequest, context: Context) -> pb.ScoreResponse:
        """Score pairs of texts."""
        model = self._engine.models.find(grpc_convert.model_name(request))
        asked = pooling_convert.pairs_request(request, context.time_remaining())
        found = await score(self._engine, model, asked)
        return pooling_convert.score_response(model.shown_name, found)

    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        """Turn text or a conversation into ids."""
        model = self._engine.models.find(grpc_convert.model_name(request))
        prompt = grpc_convert.tokenize_prompt(request, model)
        ids = await self._engine.tokenization.tokenize(model, prompt, field="text")
        return pb.TokenizeResponse(
            token_ids=ids, max_model_len=self._engine.served_context_length(model)
        )

    async def Detokenize(
        self, request: pb.DetokenizeRequest, context: Context
    ) -> pb.DetokenizeResponse:
        """Turn ids into text."""
        model = self._engine.models.find(grpc_convert.model_name(request))
        text = await self._engine.tokenization.detokenize(
            model,
            request.token_ids,
            field="token_ids",
            skip_special_tokens=request.skip_special_tokens,
        )
        return pb.DetokenizeResponse(text=text)

    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        """List the served models."""
        models = [
            pb.Model(
                name=name,
                max_model_len=self._engine.served_context_length(model),
                is_ready=self._engine.is_ready(model),
                embedding_size=self._engine.embedding_size(model),
                root=model.name,
                created=self._engine.models.loaded_at,
            )
            for model, name in self._engine.models.usable()
        ]
        models += [
            pb.Model(
                name=adapter.name,
                max_model_len=self._engine.served_context_length(model),
                is_ready=self._engine.is_ready(model),
                embedding_size=self._engine.embedding_size(model),
                root=adapter.base_model,
                created=adapter.loaded_at,
            )
            for adapter in self._engine.models.usable_adapters()
            for model in (self._engine.models.base_of(adapter),)
        ]
        return pb.ListModelsResponse(models=models)

    async def _stream(
        self, asked: GrpcStreamOptions, context: Context
    ) -> AsyncGenerator[tuple[Event, str | None]]:
        """Yield the events to show; the first with the text before the answer if it is wanted."""
        metadata = context.invocation_metadata() or ()
        LABEL.set(label_in(metadata))
        PARENT.set(parent_in(metadata))
        if any(key == IDEMPOTENCY_KEY for key, _ in metadata):
            # Its client counts on it.
            raise InvalidRequestError(
                f"{IDEMPOTENCY_KEY} is not supported over gRPC; use HTTP",
                field=IDEMPOTENCY_KEY,
                code="unsupported_parameter",
            )
        try:
            session = await self._engine.open(asked.request)
        except PagewireError as error:
            raise asked.as_given(error) from error.__cause__

        # A handler that is cancelled while it writes is only unwound when it is collected; the
        # callback frees the request at once.
        def free(_: object) -> None:
            self._engine.close(session)

        # The stubs ask for a class where the library takes any callable.
        context.add_done_callback(free)  # type: ignore[arg-type]
        # The call itself ends when its client reads on or leaves: a write cannot be taken back.
        watched = self._stalls.watch(lambda: session.fail(DeadlineError(STALLED)))
        try:
            opened = session.opened()
            prompt = opened.prompt_token_ids
            yield opened, echo_text(asked.request, prompt) if asked.has_echo else None
            final = FinalDeltas() if asked.is_final_only else None
            async for event in session.events(self._turns):
                if isinstance(event, Closed) and (header := timeline_header(event.usage.timelines)):
                    context.set_trailing_metadata(((TIMELINE_METADATA_KEY, header),))
                for ready in (event,) if final is None else final.take(event):
                    shown = ready if asked.has_output else without_output(ready)
                    if shown is not None:
                        watched.begin_write()
                        yield shown, None
                        watched.end_write()
        finally:
            self._stalls.forget(watched)
            self._engine.close(session)


def register(
    server: grpc.aio.Server,
    engine: Engine,
    pool: SchedulerPool,
    adapters: AdapterCalls,
    *,
    peers: Sequence[ExplainPeer],
    stall_seconds: float,
) -> None:
    """Add all services to a server; a client that takes nothing is cut after `stall_seconds`."""
    service = InferenceService(engine, stall_seconds=stall_seconds)
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(service, server)
    batches = BatchService(engine, stall_seconds=stall_seconds)
    batch_pb2_grpc.add_BatchServiceServicer_to_server(batches, server)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(AdminService(pool), server)
    adapters_pb2_grpc.add_AdapterServiceServicer_to_server(AdapterService(adapters), server)
    explanations = ExplainService(engine.history, peers)
    explain_pb2_grpc.add_ExplainServiceServicer_to_server(explanations, server)
