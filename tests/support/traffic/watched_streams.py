"""Streams whose waits are measured, and what a cell says of the pairs that hand prompts over."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc.aio

from pagewire.client.topology_client import CellTopology, PairFacts, WorkerFacts, topology
from pagewire_protos.frontend.v1 import inference_pb2, inference_pb2_grpc
from support.cells.role_cells import RoleCell
from support.traffic.streams import Stream

TIMELINE_KEY = "pagewire-timeline"
PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.02


@dataclass(slots=True)
class WatchedStream(Stream):
    """A stream that also knows how long it waited.

    Attributes:
        longest_wait: Seconds from its begin, or a token, to the next token.
        timeline: Of its only choice; empty before its end.
    """

    longest_wait: float = 0.0
    timeline: dict[str, Any] = field(default_factory=dict)

    async def follow(self, stub: "inference_pb2_grpc.InferenceServiceAsyncStub") -> None:
        """Read to the end; an error status or a gap ends up in `error`."""
        call: Any = stub.Complete(self.request, timeout=PATIENCE_SECONDS)
        last = time.monotonic()
        try:
            async for response in call:
                now = time.monotonic()
                if response.WhichOneof("event") == "delta":
                    self.longest_wait = max(self.longest_wait, now - last)
                    last = now
                self._take(response)
        except grpc.aio.AioRpcError as error:
            self.error = f"{error.code().name}: {error.details()}"
            return
        [self.timeline] = json.loads(dict(await call.trailing_metadata())[TIMELINE_KEY])

    @property
    def is_handed_off(self) -> bool:
        """Whether another worker computed some of its prompt, as the scheduler says."""
        return bool(self.timeline["is_handed_off"])


@contextlib.asynccontextmanager
async def following(
    cell: RoleCell, requests: Sequence[inference_pb2.CompleteRequest]
) -> AsyncIterator[list[WatchedStream]]:
    """Begin to follow all; at the end of the block wait for their ends."""
    async with grpc.aio.insecure_channel(cell.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        streams = [WatchedStream(request) for request in requests]
        tasks = [asyncio.create_task(stream.follow(stub)) for stream in streams]
        try:
            yield streams
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def eventually(
    is_so: Callable[[], Awaitable[bool]], what: str, seconds: float = PATIENCE_SECONDS
) -> None:
    """Wait until it is so; fail with `what` otherwise."""
    end = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        await asyncio.sleep(_LOOK_SECONDS)


class PairView:
    """Workers and pairs of a cell by the names of its members, as of one instant."""

    def __init__(self, cell: RoleCell, facts: CellTopology) -> None:
        addresses = {one.place.address: name for name, one in cell.members.items()}
        names = {one.worker: addresses[one.kv_endpoint] for one in facts.workers}
        self.workers: dict[str, WorkerFacts] = {names[one.worker]: one for one in facts.workers}
        self._pairs = {(names[one.prefill], names[one.decode]): one for one in facts.pairs}

    def pairs(self, prefill: str = "", decode: str = "") -> Iterator[PairFacts]:
        """Yield the pairs of a worker that computes prompts, or of one that generates, or all."""
        for (source, receiver), facts in self._pairs.items():
            if prefill in ("", source) and decode in ("", receiver):
                yield facts

    def num_transfers(self, prefill: str = "", decode: str = "") -> int:
        """Hand-offs that brought blocks, since both attached."""
        return sum(facts.num_transfers for facts in self.pairs(prefill, decode))

    def num_failures(self, prefill: str = "", decode: str = "") -> int:
        """Hand-offs that brought nothing, since both attached."""
        return sum(facts.num_failures for facts in self.pairs(prefill, decode))


async def look(cell: RoleCell) -> PairView:
    """Return what the only cell says now; asks no worker."""
    [facts] = await topology(cell.grpc_address)
    return PairView(cell, facts)
