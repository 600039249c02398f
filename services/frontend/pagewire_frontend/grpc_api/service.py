"""The public gRPC API of a frontend. Thin: messages in, engine, messages out."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

import grpc.aio
from google.protobuf.message import Message

from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.engine.embedding import embed
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.engine.scoring import score
from pagewire_frontend.grpc_api import convert as grpc_convert
from pagewire_frontend.grpc_api import pooling_convert
from pagewire_frontend.grpc_api.adapter_service import AdapterService
from pagewire_frontend.grpc_api.admin_service import AdminService
from pagewire_frontend.grpc_api.answers import open_session, shown_events
from pagewire_frontend.grpc_api.batch_service import BatchService
from pagewire_frontend.grpc_api.call_answer import CallAnswer, CallSource
from pagewire_frontend.grpc_api.call_convert import ReadCall, read_chat, read_completion
from pagewire_frontend.grpc_api.convert import GrpcStreamOptions
from pagewire_frontend.grpc_api.explain_service import ExplainPeer, ExplainService
from pagewire_frontend.grpc_api.kept_calls import CallStreams, Keeping, KeptCalls, keeping_of
from pagewire_frontend.grpc_api.kept_convert import AnswerMessage
from pagewire_frontend.grpc_api.stall_watch import STALLED, StallWatch
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.pins import draw_pins
from pagewire_frontend.http.kept_streams.recipe_keeper import KeptRequest, RecipeKeeper
from pagewire_frontend.metrics.timeline import timeline_header
from pagewire_frontend.request_label import LABEL, label_in
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.session.events import Closed, Event
from pagewire_frontend.session.reader_turns import ReaderTurns
from pagewire_frontend.traces.parent import PARENT, parent_in
from pagewire_frontend.weights.inbox import WeightsInbox
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
from pagewire_shared.errors import DeadlineError

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

    def __init__(self, engine: Engine, kept: CallStreams, *, stall_seconds: float) -> None:
        """Create the inference service.

        Args:
            engine: Opens the sessions.
            kept: Has the streams that outlive their calls.
            stall_seconds: Time after which a client that takes nothing is cut.
        """
        self._engine = engine
        self._stalls = StallWatch(stall_seconds)
        self._kept = KeptCalls(kept, self._stalls)
        self._mirror = kept.mirror
        self._turns = ReaderTurns()

    async def Chat(
        self, request: pb.ChatRequest, context: Context
    ) -> AsyncIterator[pb.ChatResponse]:
        """Answer a conversation."""
        call = await read_chat(self._engine, request, context.time_remaining())
        async for message in self._answer(request, call, context, pb.ChatResponse):
            yield message

    async def Complete(
        self, request: pb.CompleteRequest, context: Context
    ) -> AsyncIterator[pb.CompleteResponse]:
        """Continue a text or token ids."""
        call = await read_completion(self._engine, request, context.time_remaining())
        async for message in self._answer(request, call, context, pb.CompleteResponse):
            yield message

    async def Resume(
        self, request: pb.ResumeRequest, context: Context
    ) -> AsyncIterator[pb.ResumeResponse]:
        """Read on a stream that outlives its call."""
        rest = self._kept.resume(
            request.stream_id, request.num_received, context, pb.ResumeResponse
        )
        async for message in rest:
            yield message

    async def CancelStream(
        self, request: pb.CancelStreamRequest, context: Context
    ) -> pb.CancelStreamResponse:
        """End a stream that outlives its call."""
        await self._kept.cancel(request.stream_id)
        return pb.CancelStreamResponse()

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

    async def _answer(
        self,
        request: Message,
        call: ReadCall,
        context: Context,
        kind: type[AnswerMessage],
    ) -> AsyncIterator[AnswerMessage]:
        """Yield the messages of an answer, which ends with its call or goes on without it."""
        metadata = context.invocation_metadata() or ()
        LABEL.set(label_in(metadata))
        PARENT.set(parent_in(metadata))
        keeping = keeping_of(metadata, keeps_any=self._kept.keeps_any)
        if keeping is not None:
            source = self._kept_source(request, call, keeping)
            kept = self._kept.deliver(keeping, request, source, context, kind)
            async for message in kept:
                yield message
            return
        async with aclosing(self._stream(call.asked, context)) as events:
            async for event, echo in events:
                for message in call.shown(event, echo):
                    yield message

    def _kept_source(self, request: Message, call: ReadCall, keeping: Keeping) -> CallSource:
        """Return what makes an answer that goes on without its call."""
        making = Making(pins=draw_pins()) if self._mirror.is_on else None

        def new_keeper(stream_id: str) -> RecipeKeeper | None:
            if making is None:
                return None
            path, body = request.DESCRIPTOR.full_name, request.SerializeToString()
            return RecipeKeeper(self._mirror, KeptRequest(path, body, making.pins), stream_id)

        answer = CallAnswer(self._engine, call, self._turns, making)
        return CallSource(answer, new_keeper, has_late_opening=keeping.key is not None)

    async def _stream(
        self, asked: GrpcStreamOptions, context: Context
    ) -> AsyncGenerator[tuple[Event, str | None]]:
        """Yield the events to show, as shown_events, of an answer that ends with its call."""
        session = await open_session(self._engine, asked)

        # A handler that is cancelled while it writes is only unwound when it is collected; the
        # callback frees the request at once.
        def free(_: object) -> None:
            self._engine.close(session)

        # The stubs ask for a class where the library takes any callable.
        context.add_done_callback(free)  # type: ignore[arg-type]
        # The call itself ends when its client reads on or leaves: a write cannot be taken back.
        watched = self._stalls.watch(lambda: session.fail(DeadlineError(STALLED)))
        try:
            async for event, echo in shown_events(session, asked, self._turns):
                if isinstance(event, Closed) and (header := timeline_header(event.usage.timelines)):
                    context.set_trailing_metadata(((TIMELINE_METADATA_KEY, header),))
                watched.begin_write()
                yield event, echo
                watched.end_write()
        finally:
            self._stalls.forget(watched)
            self._engine.close(session)


def register(
    server: grpc.aio.Server,
    engine: Engine,
    pool: SchedulerPool,
    adapters: AdapterCalls,
    kept: CallStreams,
    inbox: WeightsInbox | None,
    *,
    peers: Sequence[ExplainPeer],
    stall_seconds: float,
) -> None:
    """Add all services to a server; a client that takes nothing is cut after `stall_seconds`.
    Tensors of new weights go to `inbox`."""
    service = InferenceService(engine, kept, stall_seconds=stall_seconds)
    inference_pb2_grpc.add_InferenceServiceServicer_to_server(service, server)
    batches = BatchService(engine, stall_seconds=stall_seconds)
    batch_pb2_grpc.add_BatchServiceServicer_to_server(batches, server)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(
        AdminService(pool, engine.models, inbox), server
    )
    adapters_pb2_grpc.add_AdapterServiceServicer_to_server(AdapterService(adapters), server)
    explanations = ExplainService(engine.history, peers)
    explain_pb2_grpc.add_ExplainServiceServicer_to_server(explanations, server)
