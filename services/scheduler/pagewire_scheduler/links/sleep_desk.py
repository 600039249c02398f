"""Carries orders to sleep and wake between operators, the core and workers."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.links.driven_core import DrivenCore
from pagewire_scheduler.peers.peers import WorkerPeer
from pagewire_shared.errors import InvalidRequestError, OverloadedError, UnavailableError
from pagewire_shared.identity.ids import short
from pagewire_shared.sleep.state import MemoryState, MemoryTag, SleepOrder, WorkerSleep

MAX_CALLS: Final = 64
"""Calls of operators that wait for workers at once."""

RETURN_SECONDS: Final = 10.0
"""How long frontends count on a worker that has ended its attach to fall asleep, or to be awake."""

_logger = logging.getLogger(__name__)


class SleepDesk:
    """Sends orders of the core, and lets operators wait for their effect.

    Args:
        workers: Streams of the attached workers, by id.
        plan_soon: Plans for touched workers at the end of this turn of the event loop.
    """

    def __init__(
        self,
        driven: DrivenCore,
        workers: Mapping[bytes, WorkerPeer],
        plan_soon: Callable[[], None],
    ) -> None:
        self._driven = driven
        self._core = driven.core
        self._workers = workers
        self._plan_soon = plan_soon
        self._waiting: set[asyncio.Future[None]] = set()
        self._models_due: float | None = None

    def note(self, peer: WorkerPeer, sleep: WorkerSleep) -> None:
        """Take what a sleeping worker says about itself."""
        worker_id = peer.info.worker_id
        if self._workers.get(worker_id) is peer:
            worker = self._core.workers[worker_id]
            self._driven.guard(lambda: self._core.sleeping.note(worker, sleep))
            if sleep.error is not None:
                _logger.warning("worker %s: %s", short(worker_id), sleep.error)
            self.note_change()

    def note_change(self) -> None:
        """Let those who wait look again: a worker has come, gone or changed its sleep."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def send_due(self, worker_id: bytes) -> None:
        """Send the order to sleep to a worker that has nothing under way any more."""
        worker = self._core.workers[worker_id]
        order = worker.duty.sleep_order
        if order is not None and self._core.sleeping.is_due(worker):
            if worker.duty.update is not None:
                self._workers[worker_id].send_update(worker.duty.update)
            else:
                self._workers[worker_id].send_sleep(order)

    def expect_return(self) -> None:
        """Leave frontends with the models they know for a while: a worker attaches again soon."""
        self._models_due = self._driven.clock() + RETURN_SECONDS

    def tick(self, now: float) -> None:
        """Send what is due."""
        self.send_wakes()
        if self._models_due is not None and now >= self._models_due:
            self._models_due = None
            self._driven.send_models()

    def send_wakes(self) -> None:
        """Send the orders to wake of the core."""
        for worker_id, tags in self._driven.guard(self._core.sleeping.take_wakes):
            self._workers[worker_id].send_wake(tags)
            _logger.info("worker %s wakes", short(worker_id))

    async def sleep(self, worker_ids: Sequence[bytes], order: SleepOrder, seconds: float) -> None:
        """Let workers sleep; return when all do.

        Raises:
            InvalidRequestError: One of them was started without sleep mode; none sleeps.
            UnavailableError: Not all sleep after that time; the others fall asleep later.
        """
        for worker in map(self._worker, worker_ids):
            if not worker.info.can_sleep:
                raise InvalidRequestError(
                    f"worker {short(worker.info.worker_id)} cannot sleep: start it with "
                    "--enable-sleep-mode",
                    field="worker",
                )
        await self._wait(worker_ids, self._is_settled, seconds, "wakes")
        for worker in map(self._worker, worker_ids):
            self._driven.guard(partial(self._core.sleeping.order, worker, order))
        self._plan_soon()
        await self._wait(worker_ids, self._is_asleep, seconds, "sleeps")

    async def wake(
        self, worker_ids: Sequence[bytes], tags: frozenset[MemoryTag], seconds: float
    ) -> None:
        """Let workers make parts of their memory anew; return when all have.

        Raises:
            UnavailableError: One cannot, or not all have after that time.
        """
        falling = [one for one in worker_ids if self._worker(one).duty.sleep_order is not None]
        await self._wait(falling, self._is_asleep, seconds, "sleeps")
        for worker_id in worker_ids:
            worker = self._worker(worker_id)
            self._driven.guard(partial(self._core.sleeping.wake, worker, tags))
        self.send_wakes()
        await self._wait(worker_ids, lambda one: self._has(one, tags), seconds, "is awake")

    def _worker(self, worker_id: bytes) -> WorkerState:
        worker = self._core.workers.get(worker_id)
        if worker is None:
            raise UnavailableError(f"worker {short(worker_id)} is gone")
        return worker

    def _is_settled(self, worker_id: bytes) -> bool:
        worker = self._core.workers.get(worker_id)
        sleep = None if worker is None else worker.duty.sleep
        return worker is not None and (sleep is None or sleep.state is MemoryState.ASLEEP)

    def _is_asleep(self, worker_id: bytes) -> bool:
        worker = self._core.workers.get(worker_id)
        return worker is not None and worker.duty.sleep is not None

    def _has(self, worker_id: bytes, tags: frozenset[MemoryTag]) -> bool:
        """Return whether a worker is awake, or has these parts. Raises the error of its wake."""
        worker = self._core.workers.get(worker_id)
        if worker is None:
            return False
        sleep = worker.duty.sleep
        if sleep is None:
            return True
        if sleep.state is MemoryState.ASLEEP and sleep.error is not None:
            raise UnavailableError(f"worker {short(worker_id)}: {sleep.error.message}")
        return sleep.state is MemoryState.ASLEEP and tags <= sleep.awake

    async def _wait(
        self,
        worker_ids: Sequence[bytes],
        is_reached: Callable[[bytes], bool],
        seconds: float,
        verb: str,
    ) -> None:
        if len(self._waiting) >= MAX_CALLS:
            raise OverloadedError("too many calls wait for workers to sleep or to wake")
        try:
            async with asyncio.timeout(seconds):
                # Of all workers each time: one of them may have an error to raise.
                while (reached := list(map(is_reached, worker_ids))) and not all(reached):
                    await self._next_change()
        except TimeoutError:
            late = next((one for one in worker_ids if not is_reached(one)), worker_ids[0])
            raise UnavailableError(
                f"worker {short(late)} neither {verb} nor says why within {seconds:g} s"
            ) from None

    async def _next_change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
