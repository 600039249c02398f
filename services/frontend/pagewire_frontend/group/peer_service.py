"""The gRPC service that peers of the group call, on a private address. Answers from this process
only and never passes a question on, but of a stream that it could make again."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import orjson

from pagewire_frontend.adapters.registry import AdapterRegistry
from pagewire_frontend.group.recipe_convert import recipe_from_message
from pagewire_frontend.http.kept_streams.directory import StreamDirectory, StreamReading
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyDirectory, KeyHolder
from pagewire_frontend.http.kept_streams.recipes import RecipeStore, packed_aside
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.traces.explain_convert import explained
from pagewire_frontend.traces.history import RequestHistory
from pagewire_protos.frontend.v1 import peer_pb2 as pb
from pagewire_protos.frontend.v1 import peer_pb2_grpc

_logger = logging.getLogger(__name__)

SERVICE_NAMES = (pb.DESCRIPTOR.services_by_name["PeerService"].full_name,)

MESSAGE_BYTES = 1024 * 1024
"""Events are sent in messages of about this size."""

Restore = Callable[[str], Coroutine[Any, Any, None]]
"""Gives a peer that has just started what it is to keep."""

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
        exposition: Callable[[bool], str],
        adapters: AdapterRegistry,
        restore: Restore,
    ) -> None:
        self._restore = restore
        self._restoring: dict[str, asyncio.Task[None]] = {}
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
        """Return the events of a response that goes on without its client."""
        reading = await self._responses.events(request.response_id, _tenant(request), request.first)
        async for frames in _messages(reading):
            yield pb.FollowEventsResponse(frames=frames)

    async def FollowStream(
        self, request: pb.FollowStreamRequest, context: Context
    ) -> AsyncIterator[pb.FollowStreamResponse]:
        """Return the events of a kept stream."""
        reading = await self._streams.read(request.stream_id, _tenant(request), request.first)
        async for frames in _messages(reading):
            yield pb.FollowStreamResponse(frames=frames)

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
        recipe = recipe_from_message(request)
        self._recipes.put(await packed_aside(recipe))
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
        """Let recipes live on whose streams are still kept; give a peer that has just started
        what it is to keep."""
        self._recipes.renew(request.stream_ids)
        if request.started_name:
            # It goes on where the peer does not wait that long.
            await asyncio.wait([self._begin_restoring(request.started_name)])
        return pb.RenewRecipesResponse()

    def _begin_restoring(self, name: str) -> "asyncio.Task[None]":
        """Return the task that gives the peer `name` what it is to keep; one at a time for each."""
        older = self._restoring.pop(name, None)
        if older is not None:
            # It gave to a process that is gone by now.
            older.cancel()

        def end(task: "asyncio.Task[None]") -> None:
            if self._restoring.get(name) is task:
                del self._restoring[name]
            error = None if task.cancelled() else task.exception()
            if error is not None:
                _logger.warning("frontend %s is not given what it kept: %s", name, error)

        task = self._restoring[name] = asyncio.create_task(self._restore(name))
        task.add_done_callback(end)
        return task

    async def ExplainOwn(
        self, request: pb.ExplainOwnRequest, context: Context
    ) -> pb.ExplainOwnResponse:
        """Return where the time of a request went."""
        return pb.ExplainOwnResponse(explanation=explained(self._history, request.request))

    async def GetMetrics(
        self, request: pb.GetMetricsRequest, context: Context
    ) -> pb.GetMetricsResponse:
        """Return the metrics of this process."""
        text = await asyncio.to_thread(self._exposition, request.is_open_metrics)
        return pb.GetMetricsResponse(exposition=text)

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


async def _messages(reading: StreamReading) -> AsyncIterator[list[bytes]]:
    """Yield the frames of each message; the first has none. Closes the reading."""
    try:
        yield []
        async for batch in reading.frames:
            for frames in _split(batch):
                yield frames
    finally:
        reading.close()


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
    exposition: Callable[[bool], str],
    adapters: AdapterRegistry,
    restore: Restore,
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
        restore=restore,
    )
    peer_pb2_grpc.add_PeerServiceServicer_to_server(service, server)
