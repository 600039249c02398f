"""Carries orders to exchange the weights of a model between operators, the core and workers.

All workers of a model are asked first whether they could serve the new weights, while they compute.
Then the model is held until what has begun is over, and all workers load together: so a request is
never answered by two versions, and which version an answer has follows from when it began. If one
worker cannot load after all, all go back to the weights of before.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pagewire_scheduler.core.routing.updating import NewestWeights
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.links.driven_core import DrivenCore
from pagewire_scheduler.links.sleep_desk import RETURN_SECONDS, SleepDesk
from pagewire_scheduler.metrics.weights import note_pause, note_update
from pagewire_scheduler.peers.peers import WorkerPeer
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PagewireError,
    UnavailableError,
)
from pagewire_shared.identity.ids import short
from pagewire_shared.sleep.state import ALL_TAGS, MemoryState
from pagewire_shared.weights.version import UpdateMode, WeightsSource, WeightsVersion

CHECK_SECONDS: Final = 600.0
"""Time for the workers to read the new weights, which they hash while they compute."""

LOAD_SECONDS: Final = 3600.0
"""Time for the workers to load them."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsUpdate:
    """An update of one model.

    Attributes:
        path: Folder on the workers' hosts; empty for the model that they were started with.
        label: The operator's name for the weights; empty for none.
        seconds: Longest wait for requests that have begun.
    """

    model: str
    path: str
    label: str
    mode: UpdateMode
    seconds: float


class WeightsDesk:
    """Runs updates, one at a time for each model.

    Args:
        workers: Streams of the attached workers, by id.
        plan_soon: Plans for touched workers at the end of this turn of the event loop.
    """

    def __init__(
        self,
        driven: DrivenCore,
        workers: Mapping[bytes, WorkerPeer],
        sleep_desk: SleepDesk,
        plan_soon: Callable[[], None],
    ) -> None:
        self._driven = driven
        self._core = driven.core
        self._workers = workers
        self._sleep_desk = sleep_desk
        self._plan_soon = plan_soon
        self._running: dict[str, asyncio.Task[None]] = {}
        self._next_query = 0
        self._turn = asyncio.Event()

    def note_turn(self) -> None:
        """Let updates look again: workers were planned for, came, went or changed their sleep."""
        if self._running:
            self._turn.set()
            self._turn = asyncio.Event()

    async def _next_turn(self) -> None:
        await self._turn.wait()

    async def update(self, update: WeightsUpdate) -> None:
        """Have all workers of a model load other weights; return when all serve them.

        An update that has begun goes on when the caller is cancelled.

        Raises:
            ModelNotFoundError: No worker serves the model.
            InvalidRequestError: A worker cannot serve these weights; nothing has changed.
            OverloadedError: Another update of the model is under way.
            UnavailableError: Requests that have begun take too long, or a worker could not load
                the weights; the old ones are served.
        """
        if update.model in self._running:
            raise OverloadedError(f"another update of {update.model} is under way")
        task = asyncio.create_task(self._run(update))
        self._running[update.model] = task
        task.add_done_callback(lambda done: self._ended(update.model, done))
        await asyncio.shield(task)

    def _ended(self, model: str, task: "asyncio.Task[None]") -> None:
        del self._running[model]
        if not task.cancelled() and (error := task.exception()) is not None:
            # Also where the caller has gone.
            _logger.warning("the update of %s failed: %s", model, error)

    async def _run(self, update: WeightsUpdate) -> None:
        try:
            await self._wake_all(update)
            version = await self._checked(update)
            before = self._core.updating.newest(update.model)
            if before is None:
                raise UnavailableError(f"the workers of {update.model} have left")
        except PagewireError:
            note_update(update.model, "refused")
            raise
        await self._exchange(update, version, before)

    async def _exchange(
        self, update: WeightsUpdate, version: WeightsVersion, before: NewestWeights
    ) -> None:
        """Hold the model until all its workers have the new weights, or again the old ones."""
        began_at = self._driven.clock()
        outcome = "failed"
        serial = max(int(time.time() * 1000), before.source.serial + 1)
        source = WeightsSource(path=update.path, label=update.label, serial=serial)
        try:
            await self._hold(update)
            await self._load(update.model, NewestWeights(source, version), before)
            outcome = "updated"
        finally:
            self._release(update.model)
            note_pause(update.model, self._driven.clock() - began_at)
            note_update(update.model, outcome)
        place = source.path or "the start"
        _logger.info("%s has weights %s from %s", update.model, version.shown, place)

    async def _wake_all(self, update: WeightsUpdate) -> None:
        """Wake the workers that sleep: what sleeps has no weights to exchange. Those that load are
        waited for."""
        tried: set[bytes] = set()
        workers = self._core.queues.workers
        away: dict[bytes, float | None] = {}
        away.update((one.info.worker_id, None) for one in self._workers_of(update.model))
        try:
            async with asyncio.timeout(update.seconds):
                # One that wakes attaches again, and is not there in between.
                while self._are_away(away) or any(map(_is_away, workers(update.model))):
                    self._wake(update.model, tried)
                    await self._next_turn()
        except TimeoutError:
            raise UnavailableError(
                f"not all workers of {update.model} are awake within {update.seconds:g} s"
            ) from None

    async def _checked(self, update: WeightsUpdate) -> WeightsVersion:
        """Return the weights, which all workers could serve."""
        workers = self._workers_of(update.model)
        for worker in workers:
            source = worker.info.source
            if source is None:
                raise InvalidRequestError(
                    f"worker {short(worker.info.worker_id)} takes no new weights", field="model"
                )
            if source.path == update.path:
                raise InvalidRequestError(
                    "path is the folder that is served now: write new weights to another folder",
                    field="path",
                )
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                answers = await asyncio.gather(
                    *(self._check(one.info.worker_id, update.path) for one in workers)
                )
        except TimeoutError:
            raise UnavailableError(
                f"the workers have not read the new weights within {CHECK_SECONDS:g} s"
            ) from None
        if len(set(answers)) > 1:
            raise InvalidRequestError(
                "path: the workers find different weights there", field="path"
            )
        return WeightsVersion(answers[0], workers[0].info.model.fingerprint_version, update.label)

    async def _check(self, worker_id: bytes, path: str) -> bytes:
        peer = self._workers.get(worker_id)
        if peer is None:
            raise UnavailableError(f"worker {short(worker_id)} is gone")
        self._next_query += 1
        try:
            answer = await peer.ask_weights(self._next_query, path)
        except asyncio.CancelledError:
            if self._workers.get(worker_id) is not peer:
                raise UnavailableError(f"worker {short(worker_id)} is gone") from None
            raise
        if isinstance(answer, PagewireError):
            raise replace(answer, message=f"worker {short(worker_id)}: {answer.message}")
        return answer

    async def _hold(self, update: WeightsUpdate) -> None:
        """Hold the model, and return once nothing that has begun is left."""
        updating = self._core.updating
        self._end(lambda: updating.hold(update.model, update.mode))
        try:
            async with asyncio.timeout(update.seconds):
                while not self._driven.guard(lambda: updating.let_go(update.model)):
                    await self._next_turn()
        except TimeoutError:
            raise UnavailableError(
                f"requests that have begun do not end within {update.seconds:g} s; the weights are "
                "as before"
            ) from None
        self._end(lambda: updating.end_late(update.model))

    async def _load(self, model: str, target: NewestWeights, before: NewestWeights) -> None:
        """Have all workers load; if one fails, have all go back."""
        try:
            await self._set(model, target)
        except PagewireError as error:
            source = replace(before.source, serial=target.source.serial + 1)
            outcome = "all workers have the weights of before"
            try:
                await self._set(model, NewestWeights(source, before.version))
            except PagewireError as fault:
                outcome = f"not all workers have those of before again: {fault}"
            raise UnavailableError(f"{error}; {outcome}", field=error.field) from error

    async def _set(self, model: str, newest: NewestWeights) -> None:
        updating = self._core.updating
        workers = self._core.queues.workers(model)
        members: dict[bytes, float | None] = {one.info.worker_id: None for one in workers}
        tried: set[bytes] = set()
        self._driven.guard(lambda: updating.set_newest(model, newest.source, newest.version))
        self._plan_soon()
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                while self._are_away(members) or not self._have(model, newest):
                    self._wake(model, tried)  # those that fell asleep with nothing to do
                    await self._next_turn()
        except TimeoutError:
            raise UnavailableError(
                f"not all workers of {model} have loaded within {LOAD_SECONDS:g} s"
            ) from None

    def _wake(self, model: str, tried: set[bytes]) -> None:
        """Wake workers that sleep. Raises the error of one that was tried and cannot wake."""
        for worker in self._core.queues.workers(model):
            sleep, worker_id = worker.duty.sleep, worker.info.worker_id
            if sleep is None or sleep.state is not MemoryState.ASLEEP:
                continue
            if worker_id in tried and sleep.error is not None:
                raise UnavailableError(f"worker {short(worker_id)}: {sleep.error}")
            tried.add(worker_id)
            self._driven.guard(partial(self._core.sleeping.wake, worker, ALL_TAGS))
        self._sleep_desk.send_wakes()

    def _are_away(self, members: dict[bytes, float | None]) -> bool:
        """Return whether some of these workers are between two attaches; one that is away for long
        is lost, and forgotten."""
        now = self._driven.clock()
        for worker_id, away_since in list(members.items()):
            if worker_id in self._core.workers:
                members[worker_id] = None
            elif away_since is None:
                members[worker_id] = now
            elif now - away_since > RETURN_SECONDS:
                del members[worker_id]
        return any(away_since is not None for away_since in members.values())

    def _have(self, model: str, newest: NewestWeights) -> bool:
        """Return whether the workers have these weights. Raises the error of one that cannot."""
        workers = self._core.queues.workers(model)
        for worker in workers:
            failed = worker.info.failed_update
            if failed is not None and failed[0] == newest.source.serial:
                name = short(worker.info.worker_id)
                raise UnavailableError(f"worker {name}: {failed[1]}", field=failed[1].field)
        return bool(workers) and not any(
            _is_away(one) or newest.version.excludes(one.info.weights) for one in workers
        )

    def _release(self, model: str) -> None:
        core = self._core
        self._driven.dispatch(self._driven.guard(lambda: core.enter(core.updating.release(model))))
        self._plan_soon()

    def _end(self, call: Callable[[], list[Sequence]]) -> None:
        """Send the ends of the sequences that a call ends."""
        self._driven.dispatch(self._driven.guard(lambda: self._core.conclude(call())))
        self._plan_soon()

    def _workers_of(self, model: str) -> list[WorkerState]:
        workers = self._core.queues.workers(model)
        if not workers:
            raise ModelNotFoundError(f"no worker serves {model!r}")
        return list(workers)


def _is_away(worker: WorkerState) -> bool:
    """Return whether a worker sleeps, loads, or is ordered to."""
    return worker.duty.sleep is not None or worker.duty.sleep_order is not None
