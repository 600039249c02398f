"""The gRPC service that peers of the group call, on a private address. Answers from this process
only and never passes a question on, but of a stream that it could make again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import orjson

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.group.recipe_convert import recipe_from_message
from pagewire_frontend.http.kept_streams.directory import StreamDirectory
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyDirectory, KeyHolder
from pagewire_frontend.http.kept_streams.recipes import RecipeStore
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.traces.explain_convert import explained
from pagewire_frontend.traces.history import RequestHistory
from pagewire_protos.frontend.v1 import peer_pb2 as pb
from pagewire_protos.frontend.v1 import peer_pb2_grpc

SERVICE_NAMES = (pb.DESCRIPTOR.services_by_name["PeerService"].full_name,)

MESSAGE_BYTES = 1024 * 1024
"""Events are sent in messages of about this size."""

Context = grpc.aio.ServicerContext[Any, Any]


class PeerService(peer_pb2_grpc.PeerServiceServicer):
    """The peers' view of this process."""

    def __init__(
        self,
        responses: ResponseDirectory,
        *,
        streams: StreamDirectory,
        keys: KeyDirectory,
        recipes: RecipeStore,
        history: RequestHistory,
        exposition: Callable[[], str],
        adapters: AdapterRegistry,
    ) -> None:
        self._keys = keys
        self._recipes = recipes
        self._history = history
        self._responses = responses
        self._streams = streams
        self._exposition = exposition
        self._adapters = adapters

    async def GetResponse(
        self, request: pb.GetResponseRequest, context: Context
    ) -> pb.GetResponseResponse:
        """Return a stored response."""
        body = await self._responses.get(request.response_id, _tenant(request))
        return pb.GetResponseResponse(body=orjson.dumps(body))

    async def CancelResponse(
        self, request: pb.CancelResponseRequest, context: Context
    ) -> pb.CancelResponseResponse:
        """End a response."""
        body = await self._responses.cancel(request.response_id, _tenant(request))
        return pb.CancelResponseResponse(body=orjson.dumps(body))

    async def DeleteResponse(
        self, request: pb.DeleteResponseRequest, context: Context
    ) -> pb.DeleteResponseResponse:
        """Forget a response."""
        await self._responses.delete(request.response_id, _tenant(request))
        return pb.DeleteResponseResponse()

    async def ListInputItems(
        self, request: pb.ListInputItemsRequest, context: Context
    ) -> pb.ListInputItemsResponse:
        """Return the items that a response was made from."""
        items = await self._responses.input_items(request.response_id, _tenant(request))
        return pb.ListInputItemsResponse(items=orjson.dumps(items))

    async def GetConversation(
        self, request: pb.GetConversationRequest, context: Context
    ) -> pb.GetConversationResponse:
        """Return the items that a response that builds on this one begins with."""
        items = await self._responses.conversation(request.response_id, _tenant(request))
        return pb.GetConversationResponse(items=orjson.dumps(items))

    async def FollowEvents(
        self, request: pb.FollowEventsRequest, context: Context
    ) -> AsyncIterator[pb.FollowEventsResponse]:
        """Return the events of a response in the background."""
        batches = await self._responses.events(request.response_id, _tenant(request), request.first)
        yield pb.FollowEventsResponse()
        async for batch in batches:
            for frames in _split(batch):
                yield pb.FollowEventsResponse(frames=frames)

    async def FollowStream(
        self, request: pb.FollowStreamRequest, context: Context
    ) -> AsyncIterator[pb.FollowStreamResponse]:
        """Return the events of a kept stream."""
        reading = await self._streams.read(request.stream_id, _tenant(request), request.first)
        try:
            yield pb.FollowStreamResponse()
            async for batch in reading.frames:
                for frames in _split(batch):
                    yield pb.FollowStreamResponse(frames=frames)
        finally:
            reading.close()

    async def DropStream(
        self, request: pb.DropStreamRequest, context: Context
    ) -> pb.DropStreamResponse:
        """End a kept stream."""
        await self._streams.forget(request.stream_id, _tenant(request))
        return pb.DropStreamResponse()

    async def ClaimKey(self, request: pb.ClaimKeyRequest, context: Context) -> pb.ClaimKeyResponse:
        """Return what an idempotency key stands for."""
        claim = KeyClaim(
            tenant=_tenant(request),
            key=request.key,
            holder=KeyHolder(request.stream_id, request.digest),
            instead_of=request.instead_of if request.HasField("instead_of") else None,
        )
        held = await self._keys.claim(claim)
        return pb.ClaimKeyResponse(stream_id=held.stream_id, digest=held.digest)

    async def KeepRecipe(
        self, request: pb.KeepRecipeRequest, context: Context
    ) -> pb.KeepRecipeResponse:
        """Keep the recipe of a peer's stream."""
        self._recipes.put(recipe_from_message(request))
        return pb.KeepRecipeResponse()

    async def NoteUsage(
        self, request: pb.NoteUsageRequest, context: Context
    ) -> pb.NoteUsageResponse:
        """Add the usage of a peer's stream to its recipe."""
        self._recipes.note_usage(request.stream_id, _tenant(request), request.usage)
        return pb.NoteUsageResponse()

    async def RenewRecipes(
        self, request: pb.RenewRecipesRequest, context: Context
    ) -> pb.RenewRecipesResponse:
        """Let recipes live on whose streams are still kept."""
        self._recipes.renew(request.stream_ids)
        return pb.RenewRecipesResponse()

    async def ExplainOwn(
        self, request: pb.ExplainOwnRequest, context: Context
    ) -> pb.ExplainOwnResponse:
        """Return where the time of a request went."""
        return pb.ExplainOwnResponse(explanation=explained(self._history, request.request))

    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: Context
    ) -> pb.GetMetricsResponse:
        """Return the metrics of this process."""
        return pb.GetMetricsResponse(exposition=await asyncio.to_thread(self._exposition))

    async def SetAdapter(
        self, request: pb.SetAdapterRequest, context: Context
    ) -> pb.SetAdapterResponse:
        """Load or forget an adapter as a peer has done, which has checked the path."""
        if request.HasField("path"):
            await self._adapters.load(
                request.name,
                Path(request.path),
                Path(request.root) if request.root else None,
                base_model=request.base_model,
            )
        elif self._adapters.find(request.name) is not None:
            await self._adapters.unload(request.name)
        return pb.SetAdapterResponse()


def _tenant(request: Any) -> str | None:
    return request.tenant if request.HasField("tenant") else None


def _split(frames: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the frames in order, as many at a time as fit in a message of MESSAGE_BYTES."""
    part: list[bytes] = []
    num_bytes = 0
    for frame in frames:
        if part and num_bytes + len(frame) > MESSAGE_BYTES:
            yield part
            part, num_bytes = [], 0
        part.append(frame)
        num_bytes += len(frame)
    if part:
        yield part


def register(
    server: grpc.aio.Server,
    *,
    responses: ResponseDirectory,
    streams: StreamDirectory,
    keys: KeyDirectory,
    recipes: RecipeStore,
    history: RequestHistory,
    exposition: Callable[[], str],
    adapters: AdapterRegistry,
) -> None:
    """Add the service to a server."""
    service = PeerService(
        responses,
        streams=streams,
        keys=keys,
        recipes=recipes,
        history=history,
        exposition=exposition,
        adapters=adapters,
    )
    peer_pb2_grpc.add_PeerServiceServicer_to_server(service, server)
