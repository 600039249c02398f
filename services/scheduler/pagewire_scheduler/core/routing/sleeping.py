"""Lets workers sleep and wakes them: by order of an operator, or because they have nothing to do.

A worker that is to sleep gets no plan, or no new sequence, until no step of it is under way; then
the order is sent. It ends its attach, and its sequences go elsewhere or wait without a worker. It
attaches again asleep, and takes nothing before it attaches awake. So everything that is known about
the content of its memory goes with the attach.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from pagewire_scheduler.core.routing.draining import Draining
from pagewire_scheduler.core.routing.queues import ModelQueues
from pagewire_scheduler.core.state.request import Request
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.errors import DeadlineError
from pagewire_shared.sleep.state import (
    ALL_TAGS,
    MemoryState,
    MemoryTag,
    SleepMode,
    SleepOrder,
    WorkerSleep,
)

RETRY_SECONDS: Final = 10.0
"""Time between wakes of one worker that requests ask for, when they fail."""


class Sleeping:
    """Sleep of the attached workers, by id."""

    def __init__(
        self,
        workers: Mapping[bytes, WorkerState],
        queues: ModelQueues,
        draining: Draining,
        now: Callable[[], float],
    ) -> None:
        self._workers = workers
        self._queues = queues
        self._draining = draining
        self._now = now
        self._idle_since: dict[WorkerState, float] = {}
        self._retry_at: dict[bytes, float] = {}
        self._wakes: list[tuple[bytes, frozenset[MemoryTag]]] = []

    def order(self, worker: WorkerState, order: SleepOrder) -> None:
        """Have a worker sleep. One that sleeps, or is to sleep or to end, is left as it is."""
        duty = worker.duty
        if not duty.takes_new:
            return
        duty.sleep_order = order
        worker.touch()
        self._queues.forget_takers(worker.info.model.name)
        if order.mode is SleepMode.WAIT:
            self._draining.drain(worker)

    def is_due(self, worker: WorkerState) -> bool:
        """Return whether a worker that is to sleep has nothing under way any more."""
        order = worker.duty.sleep_order
        if order is None:
            return False
        if order.mode is SleepMode.WAIT:
            return self._draining.is_drained(worker)
        return not worker.outstanding

    def wake(self, worker: WorkerState, tags: frozenset[MemoryTag]) -> None:
        """Have a sleeping worker make parts of its memory anew; another one is left as it is."""
        sleep = worker.duty.sleep
        if sleep is None or sleep.state is not MemoryState.ASLEEP:
            return
        state = sleep.state.require_move(MemoryState.WAKING)
        worker.duty.sleep = replace(sleep, state=state, error=None)
        self._wakes.append((worker.info.worker_id, tags))

    def note(self, worker: WorkerState, sleep: WorkerSleep) -> None:
        """Take what a sleeping worker says about itself."""
        if worker.duty.sleep is None:
            return
        worker.duty.sleep = sleep
        if sleep.error is not None:
            self._retry_at[worker.info.worker_id] = self._now() + RETRY_SECONDS

    def take_wakes(self) -> list[tuple[bytes, frozenset[MemoryTag]]]:
        """Return the orders to wake, by worker, which are to be sent now."""
        wakes, self._wakes = self._wakes, []
        return [wake for wake in wakes if wake[0] in self._workers]

    def tick(self) -> None:
        """Let idle workers sleep that want to, and wake them for requests."""
        wanting = [one for one in self._workers.values() if one.info.sleep_after]
        if not wanting and not self._idle_since:
            return
        idle = {
            one: self._idle_since.get(one, self._now()) for one in wanting if self._is_idle(one)
        }
        self._idle_since = idle
        for worker, since in idle.items():
            if self._now() - since >= worker.info.sleep_after:
                self.order(worker, SleepOrder(wakes_on_request=True))
        for model in dict.fromkeys(one.info.model.name for one in wanting):
            sleeper = self._sleeper_for(model)
            if sleeper is not None:
                self.wake(sleeper, ALL_TAGS)

    def error_of_deadline(self, request: Request) -> DeadlineError:
        """Return the error of a request that is past its deadline."""
        model = request.submission.model
        workers = self._queues.workers(model)
        if workers and all(one.duty.sleep is not None for one in workers):
            return DeadlineError(f"the deadline passed while all workers of {model} sleep")
        return DeadlineError("the deadline of the request passed")

    def _is_idle(self, worker: WorkerState) -> bool:
        duty = worker.duty
        is_at_work = worker.num_sequences or worker.outstanding or worker.loads.under_way
        return (
            duty.takes_new
            and not is_at_work
            and not worker.handoffs.outgoing
            and not self._queues.num_unplaced(worker.info.model.name)
        )

    def _sleeper_for(self, model: str) -> WorkerState | None:
        """Return the worker that is to wake for sequences that wait; None for none."""
        workers = self._queues.workers(model)
        sleeping = {one: one.duty.sleep for one in workers if one.duty.sleep is not None}
        if not sleeping or not self._are_waiting(model, workers):
            return None
        if any(sleep.state is MemoryState.WAKING for sleep in sleeping.values()):
            return None
        now = self._now()
        due = [
            one
            for one, sleep in sleeping.items()
            if sleep.wakes_on_request and self._retry_at.get(one.info.worker_id, now) <= now
        ]
        return min(due, key=lambda one: self._retry_at.get(one.info.worker_id, 0.0), default=None)

    def _are_waiting(self, model: str, workers: list[WorkerState]) -> bool:
        has_waiting = any(len(one.waiting) and one.duty.takes_new for one in workers)
        return has_waiting or self._queues.num_unplaced(model) > 0
