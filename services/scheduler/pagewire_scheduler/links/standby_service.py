"""The gRPC service about the role of this scheduler, and the task that changes it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, Final

from pagewire_protos.scheduler.v1 import standby_pb2 as pb
from pagewire_protos.scheduler.v1 import standby_pb2_grpc
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.metrics.standby import show_role
from pagewire_scheduler.peers.standby import CellRole, PartyReport, StandbyDesk
from pagewire_shared.errors import OverloadedError, UnavailableError

STATE_SECONDS: Final = 0.25
"""Time between two messages of a state; a reporter that hears none for 2 s counts it as lost."""

DECIDE_SECONDS: Final = 0.05
MAX_PARTIES: Final = 4096

_logger = logging.getLogger(__name__)


class CellStandby:
    """The role of this scheduler in its cell.

    Args:
        is_paired: Stand by at first; else this scheduler is active from the start.
    """

    def __init__(self, loop: StepLoop, *, is_paired: bool) -> None:
        self._loop = loop
        self._desk = StandbyDesk(is_paired=is_paired)
        self._changed = asyncio.Event()
        self._num_parties = 0
        show_role(self._desk.role)

    @property
    def state(self) -> pb.WatchResponse:
        """The message about the present role."""
        generation = self._loop.generation.number if self.is_active else 0
        return pb.WatchResponse(cell=self._loop.generation.cell, generation=generation)

    @property
    def is_active(self) -> bool:
        """Whether this scheduler is active."""
        return self._desk.role is CellRole.ACTIVE

    def require_active(self) -> None:
        """Raise UnavailableError unless this scheduler is active."""
        if not self.is_active:
            raise UnavailableError(
                "this scheduler stands by (--paired): give its peers the addresses of both"
                " schedulers, and ask a frontend or the active one"
            )

    async def run(self) -> None:
        """Take over when that is due; return when another scheduler has replaced this one."""
        last = self._loop.clock()
        while self._desk.role is not CellRole.REPLACED:
            await asyncio.sleep(DECIDE_SECONDS)
            now = self._loop.clock()
            # After a pause of this process the reports that wait are read first.
            if now - last < 10 * DECIDE_SECONDS:
                self._decide()
            last = now

    async def watch(
        self, requests: AsyncIterator[pb.WatchRequest]
    ) -> AsyncIterator[pb.WatchResponse]:
        """Yield states while a task reads the reports; the end of either ends both."""
        if self._num_parties == MAX_PARTIES:
            raise OverloadedError(f"more than {MAX_PARTIES} processes watch this scheduler")
        self._num_parties += 1
        party = object()
        reader = asyncio.create_task(self._read(party, requests))
        try:
            while not reader.done():
                yield self.state
                changed = asyncio.create_task(self._changed.wait())
                await asyncio.wait(
                    {reader, changed}, timeout=STATE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                changed.cancel()
            reader.result()  # raises what has ended it
        finally:
            self._num_parties -= 1
            reader.cancel()
            self._desk.leave(party)

    async def _read(self, party: object, requests: AsyncIterator[pb.WatchRequest]) -> None:
        async for message in requests:
            self._loop.generation.check_claim(
                max(message.active_generation, message.highest_generation)
            )
            report = PartyReport(
                message.active_generation,
                message.highest_generation,
                message.asks,
                self._loop.clock(),
            )
            self._desk.report(party, report)
            self._decide()

    def _decide(self) -> None:
        before = self._desk.role
        role = self._desk.decide(self._loop.generation.number, self._loop.clock())
        if role is before:
            return
        if role is CellRole.ACTIVE:
            self._loop.begin_term(self._desk.highest_seen)
            _logger.info("takes over as generation %d", self._loop.generation.number)
        else:
            _logger.warning("another scheduler of this cell has taken over; this one stands by")
        show_role(role)
        woken, self._changed = self._changed, asyncio.Event()
        woken.set()


class StandbyServicer(standby_pb2_grpc.StandbyServiceServicer):
    """Serves the streams of frontends and workers that know both schedulers."""

    def __init__(self, standby: CellStandby) -> None:
        self._standby = standby

    async def Watch(
        self, request_iterator: AsyncIterator[pb.WatchRequest], context: Any
    ) -> AsyncIterator[pb.WatchResponse]:
        """Serve one frontend or worker until its stream ends."""
        async for message in self._standby.watch(request_iterator):
            yield message
