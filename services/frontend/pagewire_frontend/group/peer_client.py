"""Client of another frontend of the group, over its private address."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from math import inf
from typing import Any, Final

import grpc.aio
import orjson

from pagewire_frontend.group.recipe_convert import recipe_to_message
from pagewire_frontend.http.kept_streams.directory import StreamReading
from pagewire_frontend.http.kept_streams.ids import (
    StreamElsewhereError,
    StreamLostError,
    StreamNotFoundError,
)
from pagewire_frontend.http.kept_streams.keys import KeyClaim, KeyHolder
from pagewire_frontend.http.kept_streams.recipes import Recipe
from pagewire_frontend.http.responses.ids import ResponseNotFoundError
from pagewire_frontend.http.responses.pending_response import Body
from pagewire_protos.frontend.v1 import peer_pb2 as pb
from pagewire_protos.frontend.v1 import peer_pb2_grpc
from pagewire_protos.frontend.v1.explain_pb2 import ExplainResponse
from pagewire_shared.errors import DeadlineError, PagewireError, UnavailableError
from pagewire_shared.rpc import links
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.options import control_channel_options
from pagewire_shared.security.roles import LinkRole

ADAPTER_SECONDS: Final = 60.0
"""Time in which a peer reads an adapter."""

RECIPE_SECONDS: Final = 0.5
"""Time in which a peer takes a recipe: the first event of a stream waits for it."""

RENEWED_SECONDS: Final = 300.0
"""Time that calls have to end once a new certificate is used."""


class Peer:
    """A peer: its responses, as a ResponseDirectory, its kept streams, as a StreamDirectory, and
    its metrics. `close` it.

    It is dialled when it is first asked and need not be there before. Every question ends within
    `timeout_seconds`, and so does the wait for the first of the events.

    Raises (all questions):
        UnavailableError: The peer is not there, or does not answer in time.
        PagewireError: The error that the peer answers.
    """

    def __init__(self, name: str, address: Address, *, timeout_seconds: float) -> None:
        self.name = name
        self._timeout_seconds = timeout_seconds
        self._address = address
        self._closing: set[asyncio.Task[None]] = set()
        self._dial()

    async def get(self, response_id: str, tenant: str | None) -> Body:
        """Return a response as it is now."""
        request = pb.GetResponseRequest(response_id=response_id, tenant=tenant)
        body: Body = orjson.loads((await self._ask(self._stub().GetResponse, request)).body)
        return body

    async def cancel(self, response_id: str, tenant: str | None) -> Body:
        """End a response that still runs and return it."""
        request = pb.CancelResponseRequest(response_id=response_id, tenant=tenant)
        body: Body = orjson.loads((await self._ask(self._stub().CancelResponse, request)).body)
        return body

    async def delete(self, response_id: str, tenant: str | None) -> None:
        """Forget a response."""
        request = pb.DeleteResponseRequest(response_id=response_id, tenant=tenant)
        await self._ask(self._stub().DeleteResponse, request)

    async def input_items(self, response_id: str, tenant: str | None) -> list[Body]:
        """Return all items that a response was made from."""
        request = pb.ListInputItemsRequest(response_id=response_id, tenant=tenant)
        items: list[Body] = orjson.loads(
            (await self._ask(self._stub().ListInputItems, request)).items
        )
        return items

    async def conversation(self, response_id: str, tenant: str | None) -> list[Body]:
        """Return the items that a response that builds on this one begins with."""
        request = pb.GetConversationRequest(response_id=response_id, tenant=tenant)
        answer = await self._ask(self._stub().GetConversation, request)
        items: list[Body] = orjson.loads(answer.items)
        return items

    async def events(self, response_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read the events of a response from number `first` on."""
        request = pb.FollowEventsRequest(response_id=response_id, tenant=tenant, first=first)
        return await self._reading(self._stub().FollowEvents(request))

    async def read(self, stream_id: str, tenant: str | None, first: int) -> StreamReading:
        """Begin to read a kept stream from event number `first` on."""
        request = pb.FollowStreamRequest(stream_id=stream_id, tenant=tenant, first=first)
        return await self._reading(self._stub().FollowStream(request))

    async def forget(self, stream_id: str, tenant: str | None) -> None:
        """End a kept stream there, and forget it and its recipe."""
        request = pb.DropStreamRequest(stream_id=stream_id, tenant=tenant)
        await self._ask(self._stub().DropStream, request)

    async def claim(self, claim: KeyClaim) -> KeyHolder:
        """Return what an idempotency key stands for from now on; see KeyDirectory."""
        request = pb.ClaimKeyRequest(
            key=claim.key,
            tenant=claim.tenant,
            stream_id=claim.holder.stream_id,
            digest=claim.holder.digest,
            instead_of=claim.instead_of,
        )
        answer = await self._ask(self._stub().ClaimKey, request)
        return KeyHolder(answer.stream_id, answer.digest)

    async def keep_recipe(self, recipe: Recipe) -> None:
        """Have the recipe of a stream kept there."""
        await self._ask(self._stub().KeepRecipe, recipe_to_message(recipe), RECIPE_SECONDS)

    async def note_usage(self, stream_id: str, tenant: str | None, usage: bytes) -> None:
        """Add the usage of a stream to its recipe there."""
        request = pb.NoteUsageRequest(stream_id=stream_id, tenant=tenant, usage=usage)
        await self._ask(self._stub().NoteUsage, request, RECIPE_SECONDS)

    async def renew_recipes(self, stream_ids: Sequence[str]) -> None:
        """Let the recipes of these streams live on there."""
        request = pb.RenewRecipesRequest(stream_ids=stream_ids)
        await self._ask(self._stub().RenewRecipes, request)

    async def reach(self) -> None:
        """Return once there is a connection: after a failed try the next one waits a while."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._channel.channel_ready()
        except TimeoutError:
            raise self._away() from None

    async def announce(self, name: str) -> None:
        """Say that the frontend `name` has started; return once it was given what it has lost."""
        await self._ask(self._stub().RenewRecipes, pb.RenewRecipesRequest(started_name=name))

    async def explain(self, request: str) -> ExplainResponse:
        """Return where the time of one of its requests went."""
        asked = pb.ExplainOwnRequest(request=request)
        answer: pb.ExplainOwnResponse = await self._ask(self._stub().ExplainOwn, asked)
        return answer.explanation

    async def _reading(self, call: Any) -> StreamReading:
        """Return the reading of a call whose answers are events, after its first answer."""
        try:
            # The first message is empty: until then a refusal may come.
            async with asyncio.timeout(self._timeout_seconds):
                await call.read()
        except TimeoutError:
            call.cancel()
            raise self._away() from None
        except grpc.aio.AioRpcError as error:
            raise self._reason(error) from error
        except BaseException:
            call.cancel()
            raise
        return StreamReading(self._frames(call), call.cancel)

    async def metrics(self, is_open: bool) -> str:
        """Return the metrics of the process, in Prometheus' text format; `is_open` in OpenMetrics,
        where the process knows that."""
        asked = pb.GetMetricsRequest(is_open_metrics=is_open)
        answer = await self._ask(self._stub().GetMetrics, asked)
        exposition: str = answer.exposition
        return exposition

    async def set_adapter(self, name: str, path: str | None, root: str, base_model: str) -> None:
        """Load an adapter there; without a path forget the name."""
        request = pb.SetAdapterRequest(name=name, path=path, root=root, base_model=base_model)
        try:
            await self._stub().SetAdapter(request, timeout=ADAPTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise self._reason(error) from error

    async def close(self) -> None:
        """End the connection."""
        for task in self._closing:
            task.cancel()
        await self._channel.close()

    def _dial(self) -> None:
        self._stamp = links.stamp()
        options = control_channel_options()
        # Of a group whose certificates are bound, each proves its own name.
        instance = self.name if links.own_instance(LinkRole.FRONTEND) else ""
        self._channel = links.open_channel(
            self._address, LinkRole.FRONTEND, options, instance=instance
        )
        self._service = peer_pb2_grpc.PeerServiceStub(self._channel)

    def _stub(self) -> Any:
        """Return the service; behind a new certificate, over a channel of its own."""
        if links.stamp() != self._stamp:
            # Calls of the channel before may go on for a while.
            task = asyncio.create_task(self._channel.close(RENEWED_SECONDS))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
            self._dial()
        return self._service

    async def _ask(self, method: Any, request: Any, seconds: float | None = None) -> Any:
        try:
            return await method(request, timeout=min(seconds or inf, self._timeout_seconds))
        except grpc.aio.AioRpcError as error:
            raise self._reason(error) from error

    async def _frames(self, call: Any) -> AsyncIterator[list[bytes]]:
        try:
            while (message := await call.read()) is not grpc.aio.EOF:
                yield list(message.frames)
        except grpc.aio.AioRpcError as error:
            raise self._reason(error) from error
        finally:
            call.cancel()

    def _reason(self, error: grpc.aio.AioRpcError) -> PagewireError:
        reason = from_rpc_error(error)
        # Connection and deadline are the group's, not the client's: a server is away. One that ends
        # cancels its calls; a call that ends here raises asyncio.CancelledError.
        is_cancelled = error.code() is grpc.StatusCode.CANCELLED
        if is_cancelled or isinstance(reason, UnavailableError | DeadlineError):
            return self._away()
        # The class exists in the frontend only: across processes its code identifies it.
        if reason.code == ResponseNotFoundError.code:
            return ResponseNotFoundError(reason.message)
        for kind in (StreamNotFoundError, StreamElsewhereError, StreamLostError):
            if reason.code == kind.code:
                return kind(reason.message)
        return reason

    def _away(self) -> UnavailableError:
        return UnavailableError(f"frontend {self.name} of this group does not answer")
