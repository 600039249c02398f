"""Cached blocks: loads from KV stores, pulls from other workers, and resets of prefix caches."""

from collections.abc import Callable, Iterable, Mapping

from pagewire_scheduler.core.data.settings import CoreCounts, CoreSettings
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.handoffs import (
    complete_prefill,
    end_late_handoffs,
    note_started,
    yield_leases,
)
from pagewire_scheduler.core.transfers.loading import (
    check_answer,
    finish_load,
    give_up_overdue,
    order_loads,
    yield_blocks,
)
from pagewire_scheduler.core.transfers.outside_stores import OutsideStores
from pagewire_scheduler.core.transfers.pulls import order_pulls
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_shared.kv.load import LoadAnswer, LoadOrder, LoadOutcome


class KvCaches:
    """Orders what workers load, and takes the answers."""

    def __init__(
        self,
        workers: Mapping[bytes, WorkerState],
        stores: RemoteIndex,
        counts: CoreCounts,
        now: Callable[[], float],
        *,
        settings: CoreSettings,
    ) -> None:
        """Args: `workers` are the attached ones, by id."""
        self._workers = workers
        self._stores = stores
        self._counts = counts
        self._now = now
        self._settings = settings
        self._outside = OutsideStores(now)

    def reset(self, model: str | None) -> int:
        """Forget the cached prefixes of a model, or of all; return how many blocks that were.

        Loads under way do not bring names back. KV stores keep what they have, and later requests
        may load it again: to remove it there, too, it must be deleted there.
        """
        num_blocks = 0
        for worker in self._workers.values():
            if model in (None, worker.info.model.name):
                num_blocks += worker.drop_prefix_cache()
                worker.touch()
        return num_blocks

    # Orders are taken after every plan, before what is cancelled

    def take_loads(self, worker_id: bytes) -> list[LoadOrder]:
        """Return the loads to order from a worker."""
        return self._workers[worker_id].loads.take_orders()

    def take_cancelled_loads(self, worker_id: bytes) -> list[int]:
        """Return the ids of the loads that a worker is to stop."""
        return self._workers[worker_id].loads.take_cancelled()

    def note_load(self, worker_id: bytes, answer: LoadAnswer) -> None:
        """Take the answer to a load; one to an unknown load is dropped.

        Raises:
            WireError: It says what cannot be; the worker must be cut off. Nothing has changed.
        """
        worker = self._workers[worker_id]
        worker.touch()
        load = check_answer(worker, answer)
        if load is None:
            self._counts.num_dropped_results += 1
            return
        finish_load(worker, load, answer, self._counts, self._now())
        if load.order.copies is not None:
            for part in answer.parts:
                lacked = [load.order.names[at] for at in part.missing]
                self._stores.removed(load.order.copies.stores[part.store], lacked)
        elif answer.outcome is LoadOutcome.MISSING and not load.is_pull:
            # Else it would be asked for again by all who want it.
            missing = load.order.names[answer.num_blocks : answer.num_blocks + 1]
            if load.order.store == worker.info.outside_store:
                self._outside.note_missing(load.order.store, missing)
            else:
                self._stores.removed(load.order.store, missing)

    # Around a plan

    def order_loads(self, worker: WorkerState) -> None:
        """Order what sequences that wait on `worker` lack, from workers and stores."""
        order_pulls(worker, self._now())
        if not (worker.info.loads_blocks and self._settings.is_caching):
            return
        if worker.info.outside_store:
            if self._settings.asks_outside_stores:
                outside = self._outside.index(worker.info.outside_store)
                order_loads(worker, outside, self._counts.loads, self._now())
        elif self._stores.is_usable:
            order_loads(worker, self._stores, self._counts.loads, self._now())

    def begin_pulls(self, source: WorkerState, found: Iterable[Sequence]) -> None:
        """Let receivers pull what the newest plan computes, and what prefills have `found`."""
        for prefill in found:
            complete_prefill(source, prefill, self._now())
        for handoff in note_started(source, self._now()):
            order_pulls(handoff.receiver, self._now())
            handoff.receiver.touch()  # its link sends what was ordered

    def yield_blocks(self, worker: WorkerState) -> None:
        """Free what loads and hand-offs hold on a worker that has nothing under way."""
        if worker.outstanding:
            return
        if worker.loads.under_way:
            yield_blocks(worker)
        if worker.handoffs.outgoing:
            yield_leases(worker, self._now())

    def give_up_overdue(self, workers: Iterable[WorkerState]) -> None:
        """End the hand-offs and loads of `workers` that are past their deadlines."""
        for worker in workers:
            end_late_handoffs(worker, self._now())
            if worker.loads.under_way:
                give_up_overdue(worker, self._counts.loads, self._now())
