"""Exchanges the weights of a model: holds requests back, and has each worker load the newest.

For each model one version of the weights is the newest. A worker with an older one computes
nothing: it is ordered to load the newest, ends its attach for that as for sleep, and attaches
again. While a model is held, requests without output wait, and those with output run to their end,
or end. So all output of a request is of one version, and blocks of another one are not known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.results.finish import end_request, end_with_followers
from pagewire_scheduler.core.routing.draining import Draining
from pagewire_scheduler.core.routing.queues import ModelQueues
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_scheduler.core.state.worker import WorkerState, worker_of
from pagewire_shared.errors import WeightsChangedError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.sleep.state import SleepMode, SleepOrder
from pagewire_shared.weights.version import (
    UpdateMode,
    UpdateOrder,
    WeightsSource,
    WeightsVersion,
)

RETRY_SECONDS: Final = 10.0
"""Time between tries of a worker that could not load the newest weights."""


@dataclass(frozen=True, slots=True)
class NewestWeights:
    """The weights that all workers of a model are to have."""

    source: WeightsSource
    version: WeightsVersion


class Updating:
    """The newest weights by served model name, and the models that are held."""

    def __init__(
        self,
        queues: ModelQueues,
        draining: Draining,
        requests: Mapping[RequestId, Request],
        now: Callable[[], float],
    ) -> None:
        self._queues = queues
        self._draining = draining
        self._requests = requests
        self._now = now
        self._newest: dict[str, NewestWeights] = {}
        self._held: dict[str, UpdateMode] = {}
        self._retry_at: dict[bytes, float] = {}
        queues.may_run = self._may_run

    def newest(self, model: str) -> NewestWeights | None:
        """Return the newest weights of a model; None before a worker has any."""
        return self._newest.get(model)

    # Holding a model

    def hold(self, model: str, mode: UpdateMode) -> list[Sequence]:
        """Start no request of `model` any more; return the sequences that end for it."""
        self._held[model] = mode
        workers = self._queues.workers(model)
        if mode is UpdateMode.ABORT:
            for worker in workers:
                self._pause(worker)
            return self._end_begun(model)
        for worker in workers:
            if not worker.fault_isolation:
                self._draining.send_away(worker)
            worker.touch()
        return []

    def end_late(self, model: str) -> list[Sequence]:
        """End the requests that have begun since `hold` with ABORT; return their sequences."""
        return self._end_begun(model) if self._held.get(model) is UpdateMode.ABORT else []

    def let_go(self, model: str) -> bool:
        """Return whether nothing that has begun is left on the workers of a held model. Choices of
        requests that have begun since `hold` are placed."""
        workers = self._queues.workers(model)
        if self._held.get(model) is UpdateMode.ABORT:
            return not any(worker.outstanding for worker in workers)
        begun = [one for one in self._queues.unplaced_of(model) if one.request.weights is not None]
        for sequence in begun:
            self._queues.place_again(sequence)
        return not begun and not any(map(_is_at_work, workers))

    def release(self, model: str) -> list[Sequence]:
        """Let requests of `model` start again; return the sequences to place."""
        self._held.pop(model, None)
        for worker in self._queues.workers(model):
            self._judge(worker)
        return self._queues.take_unplaced(model)

    def _may_run(self, sequence: Sequence) -> bool:
        request = sequence.request
        model, bound = request.submission.model, request.weights
        newest = self._newest.get(model)
        if bound is not None:
            return newest is None or not newest.version.excludes(bound)
        if model in self._held:
            return False
        # A step that is out on a worker with old weights may begin the request with these.
        return (
            newest is None
            or not newest.source.serial
            or not any(_is_on(one, newest) for one in request.sequences if one is not sequence)
        )

    def _end_begun(self, model: str) -> list[Sequence]:
        begun = [
            request
            for request in self._requests.values()
            if request.submission.model == model and request.weights is not None
        ]
        error = WeightsChangedError("the weights of the model are updated: send the request again")
        # Legal in every state, as at a deadline.
        return [one for each in begun for one in end_request(each, State.FINISHED_ABORTED, error)]

    # Newest weights

    def set_newest(self, model: str, source: WeightsSource, version: WeightsVersion) -> None:
        """Have all workers of `model` load these weights; they are held or idle."""
        self._newest[model] = NewestWeights(source, version)
        for worker in self._queues.workers(model):
            self._judge(worker)

    def note_attach(self, worker: WorkerState) -> None:
        """Take the weights of a worker that has attached: they are the newest, or too old."""
        source, model = worker.info.source, worker.info.model.name
        if source is None or worker.duty.sleep is not None:
            return
        newest = self._newest.get(model)
        if newest is None or source.serial > newest.source.serial:
            self.set_newest(model, source, worker.info.weights)
        if (failed := worker.info.failed_update) is not None:
            self._retry_at[worker.info.worker_id] = self._now() + RETRY_SECONDS
            if newest is not None and failed[0] < newest.source.serial:
                del self._retry_at[worker.info.worker_id]
        self._judge(worker)

    def note_detach(self, worker: WorkerState) -> list[Sequence]:
        """Forget a worker; end the sequences that no worker can go on with, and return them."""
        self._retry_at.pop(worker.info.worker_id, None)
        model = worker.info.model.name
        newest = self._newest.get(model)
        if newest is not None and not newest.source.serial and not self._queues.workers(model):
            del self._newest[model]
        ended: list[Sequence] = []
        for sequence in self._queues.unplaced_of(model):
            error = self.error_of(sequence)
            if error is not None:
                ended += end_with_followers(sequence, State.FINISHED_FAILED, error)
        return ended

    def tick(self) -> None:
        """Order again what failed some time ago."""
        for worker_id, due in list(self._retry_at.items()):
            if due <= self._now():
                del self._retry_at[worker_id]
                for model in self._newest:
                    for worker in self._queues.workers(model):
                        if worker.info.worker_id == worker_id:
                            self._judge(worker)

    def error_of(self, sequence: Sequence) -> WeightsChangedError | None:
        """Return the error of a sequence that has begun with weights of which there are newer."""
        bound = sequence.request.weights
        newest = self._newest.get(sequence.request.submission.model)
        if bound is None or newest is None or not newest.version.excludes(bound):
            return None
        return WeightsChangedError(
            f"the answer began with weights {bound.shown}, and the workers now have "
            f"{newest.version.shown}: send the request again"
        )

    def _judge(self, worker: WorkerState) -> None:
        """Pause a worker with old weights and order the newest; let any other one compute."""
        newest, duty = self._newest.get(worker.info.model.name), worker.duty
        source = worker.info.source
        if source is None or duty.sleep is not None or duty.sleep_order is not None:
            return
        if newest is None or not _is_old(worker, newest):
            if duty.is_paused and worker.info.model.name not in self._held:
                duty.is_paused = False
                self._queues.forget_takers(worker.info.model.name)
                worker.touch()
            return
        self._pause(worker)
        if worker.info.worker_id not in self._retry_at:
            duty.sleep_order = SleepOrder()
            duty.update = UpdateOrder(newest.source, newest.version.fingerprint)

    def _pause(self, worker: WorkerState) -> None:
        duty = worker.duty
        duty.is_paused = True
        if duty.sleep_order is not None:
            # What runs there does not run to its end any more, which an order may wait for.
            duty.sleep_order = replace(duty.sleep_order, mode=SleepMode.KEEP)
        worker.touch()
        self._queues.forget_takers(worker.info.model.name)


def _is_on(sequence: Sequence, newest: NewestWeights) -> bool:
    """Return whether a sequence is on a worker with other weights than the newest."""
    worker = worker_of(sequence)
    return worker is not None and newest.version.excludes(worker.info.weights)


def _is_old(worker: WorkerState, newest: NewestWeights) -> bool:
    source = worker.info.source
    assert source is not None
    if source.serial >= newest.source.serial:
        return False
    weights = worker.info.weights
    return newest.version.excludes(weights) or newest.version.label != weights.label


def _is_at_work(worker: WorkerState) -> bool:
    return bool(
        worker.num_sequences
        or worker.outstanding
        or worker.loads.under_way
        or worker.handoffs.outgoing
    )
