"""Finds the active scheduler of a cell. With two addresses it keeps a stream to each, so that the
change from one to the other needs no dialling and no waiting."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import grpc.aio

from pagewire_protos.scheduler.v1.standby_pb2_grpc import StandbyServiceStub
from pagewire_shared.errors import UnavailableError
from pagewire_shared.pair.choice import SchedulerChoice
from pagewire_shared.pair.convert import report_to_message
from pagewire_shared.process.backoff import REDIAL_MAX_SECONDS, Backoff
from pagewire_shared.process.cancellation import is_cancelled
from pagewire_shared.rpc.address import Address
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import control_channel_options
from pagewire_shared.rpc.redial import Redial
from pagewire_shared.security.roles import LinkRole

REPORT_SECONDS: Final = 0.5
LOOK_SECONDS: Final = 0.1
LATE_SECONDS: Final = 0.5
"""A look that comes this late was held up here, and that time counts against no scheduler."""

Result = TypeVar("Result")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PairMember:
    """One scheduler of a pair, as this process hears it."""

    address: Address
    is_active: bool
    is_heard: bool


class SchedulerFinder:
    """The schedulers of one cell.

    Args:
        addresses: One, which is dialled as it is, or two, of which one is active.
    """

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = tuple(addresses)
        self._redials = [Redial(address) for address in addresses]
        self._choice = SchedulerChoice()
        self._dialled: int | None = None
        self._turn = asyncio.Event()
        self._noted: tuple[int | None, int | None] = (None, None)

    @property
    def address(self) -> Address:
        """The scheduler that was dialled last, or the first."""
        return self._addresses[self._dialled or 0]

    @property
    def is_pair(self) -> bool:
        """Whether the cell has a standby."""
        return len(self._addresses) > 1

    def members(self) -> list[PairMember]:
        """Return the schedulers of a pair; nothing for one that is alone."""
        if not self.is_pair:
            return []
        now = time.monotonic()
        active = self._choice.active(now)
        return [
            PairMember(
                address, is_active=index == active, is_heard=self._choice.is_heard(index, now)
            )
            for index, address in enumerate(self._addresses)
        ]

    async def next_address(self) -> Address:
        """Return the address to dial; of a pair, wait until one is active."""
        if not self.is_pair:
            self._dialled = 0
        else:
            while (active := self._active()) is None:
                await self._wait_turn()
            self._dialled = active
        self._redials[self._dialled or 0].begin()
        return self.address

    async def wait(self, seconds: float) -> None:
        """Wait between two attempts; return early when another scheduler is active, or a new
        server listens."""
        if not self.is_pair:
            await self._redials[0].wait(seconds)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._active() in (None, self._dialled):
                    await self._wait_turn()

    async def follow(self, job: Coroutine[Any, Any, Result]) -> Result:
        """Run an attach to the address dialled last to its end.

        Raises:
            UnavailableError: Another scheduler is active now; the attach was cancelled.
        """
        if not self.is_pair:
            return await job
        attach = asyncio.create_task(job)
        left = asyncio.create_task(self._wait_left())
        try:
            await asyncio.wait({attach, left}, return_when=asyncio.FIRST_COMPLETED)
            if attach.done():
                return attach.result()
            raise UnavailableError("another scheduler of this cell has taken over")
        finally:
            attach.cancel()
            left.cancel()
            await asyncio.gather(attach, left, return_exceptions=True)

    async def run(self) -> None:
        """Keep a stream to each scheduler of a pair, until cancelled."""
        if not self.is_pair:
            return
        async with asyncio.TaskGroup() as group:
            for index in range(len(self._addresses)):
                group.create_task(self._keep_watch(index))
            group.create_task(self._look())

    def _active(self) -> int | None:
        return self._choice.active(time.monotonic())

    async def _wait_left(self) -> None:
        while self._active() in (None, self._dialled):
            await self._wait_turn()

    async def _wait_turn(self) -> None:
        await self._turn.wait()

    def _note(self) -> None:
        """Wake all that wait, when another scheduler is active, or is the next, or none is."""
        now = time.monotonic()
        noted = active, _ = self._choice.active(now), self._choice.candidate(now)
        if noted != self._noted:
            if active != self._noted[0]:
                where = "gone" if active is None else self._addresses[active]
                _logger.info("the active scheduler is %s", where)
            self._noted = noted
            turn, self._turn = self._turn, asyncio.Event()
            turn.set()

    async def _look(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now = time.monotonic()
            lateness = now - last - LOOK_SECONDS
            last = now
            if lateness > LATE_SECONDS:
                self._choice.forgive(lateness)
            self._note()

    async def _keep_watch(self, index: int) -> None:
        backoff = Backoff(max_seconds=REDIAL_MAX_SECONDS)
        redial = Redial(self._addresses[index])
        while True:
            redial.begin()
            try:
                await self._watch_once(index, backoff)
            except grpc.aio.AioRpcError as error:
                _logger.debug("watching %s: %s", self._addresses[index], error.details())
            except asyncio.CancelledError:
                # grpc.aio reports a peer's CANCELLED status as the cancellation of the reader.
                if is_cancelled():
                    raise
            self._choice.lose(index)
            self._note()
            await redial.wait(backoff.next_seconds())

    async def _watch_once(self, index: int, backoff: Backoff) -> None:
        address, options = self._addresses[index], control_channel_options()
        async with open_channel(address, LinkRole.SCHEDULER, options) as channel:
            call: Any = StandbyServiceStub(channel).Watch()
            reports = asyncio.create_task(self._report(index, call))
            try:
                while (state := await call.read()) is not grpc.aio.EOF:
                    backoff.reset()
                    self._choice.hear(index, state.generation, time.monotonic())
                    self._note()
            finally:
                reports.cancel()
                call.cancel()
                await asyncio.gather(reports, return_exceptions=True)

    async def _report(self, index: int, call: Any) -> None:
        """Report at a change, and every REPORT_SECONDS; without an end."""
        while True:
            turn = self._turn
            report = self._choice.report(index, time.monotonic())
            await call.write(report_to_message(report))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await turn.wait()
