"""The part of the core's facade about cached blocks: prefix caches of workers, and KV stores that
workers load from."""

from collections.abc import Iterable

from pagewire_scheduler.core.data.kv_load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_scheduler.core.data.settings import CoreCounts
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
from pagewire_scheduler.core.transfers.pulls import order_pulls
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_shared.identity.ids import BlockName


class KvCaches:
    """What is known of cached blocks. The core is one of these; see `SchedulerCore`."""

    def __init__(self, *, is_caching: bool) -> None:
        self._is_caching = is_caching
        self.counts = CoreCounts()
        self.workers: dict[bytes, WorkerState] = {}
        self.stores = RemoteIndex()
        self.now = 0.0
        # Who is to be planned for; who is looked at with the next tick, since time may help; and
        # whose loads and hand-offs have deadlines. Dictionaries for their order.
        self._touched: dict[WorkerState, None] = {}
        self._stuck: dict[WorkerState, None] = {}
        self._timed: dict[WorkerState, None] = {}

    @property
    def is_touched(self) -> bool:
        """Whether any worker is to be planned for."""
        return bool(self._touched)

    def take_touched(self) -> list[bytes]:
        """Return the workers to plan for: those that were touched.

        All others would get no plan. Planning may touch further workers.
        """
        touched = list(self._touched)
        self._touched.clear()
        return [one.info.worker_id for one in touched if self._is_attached(one)]

    def reset_prefix_cache(self, model: str | None) -> int:
        """Forget the cached prefixes of a model, or of all; return how many blocks that were.

        Loads under way do not bring names back. KV stores keep what they have, and later requests
        may load it again, unless it is deleted there, too.
        """
        num_blocks = 0
        for worker in self.workers.values():
            if model in (None, worker.info.model.name):
                num_blocks += worker.drop_prefix_cache()
                worker.touch()
        return num_blocks

    # What stores say

    def note_stored(self, store: str, names: Iterable[BlockName]) -> None:
        """A store has blocks of these names."""
        self.stores.stored(store, names)

    def note_removed(self, store: str, names: Iterable[BlockName]) -> None:
        """A store has them no longer."""
        self.stores.removed(store, names)

    def note_cleared(self, store: str) -> None:
        """A store has nothing, or nothing is known of what it has."""
        self.stores.cleared(store)

    def set_store(self, store: str, is_up: bool) -> None:
        """A store can be asked, or not; what is known of it stays until it is cleared."""
        self.stores.set_up(store, is_up=is_up)

    # Loads; what is to be sent is taken after every `plan`, orders first

    def take_loads(self, worker_id: bytes) -> list[LoadOrder]:
        """Return the load orders to send to a worker."""
        return self.workers[worker_id].loads.take_orders()

    def take_cancelled_loads(self, worker_id: bytes) -> list[int]:
        """Return the ids of the loads to cancel on a worker."""
        return self.workers[worker_id].loads.take_cancelled()

    def note_load(self, worker_id: bytes, answer: LoadAnswer) -> None:
        """Take the answer to a load; one to an unknown load is dropped.

        Raises:
            WireError: It says what cannot be; the worker must be cut off. Nothing has changed.
        """
        worker = self.workers[worker_id]
        worker.touch()
        load = check_answer(worker, answer)
        if load is None:
            self.counts.num_dropped_results += 1
            return
        finish_load(worker, load, answer, self.counts, self.now)
        if answer.outcome is LoadOutcome.MISSING and load.handoff is None:
            # Else it would be asked for again by all who want it.
            missing = load.order.names[answer.num_blocks : answer.num_blocks + 1]
            self.stores.removed(load.order.store, missing)

    # Inside

    def _order_loads(self, worker: WorkerState) -> None:
        order_pulls(worker, self.now)
        if self.stores.is_usable and worker.info.loads_blocks and self._is_caching:
            order_loads(worker, self.stores, self.counts.loads, self.now)

    def _begin_pulls(self, source: WorkerState, found: Iterable[Sequence]) -> None:
        """Let receivers pull what the newest plan computes, and what prefills have `found`."""
        for prefill in found:
            complete_prefill(prefill, self.now)
        for handoff in note_started(source, self.now):
            order_pulls(handoff.receiver, self.now)
            handoff.receiver.touch()  # its link sends the orders

    def _yield_blocks(self, worker: WorkerState) -> None:
        if worker.outstanding:
            return
        if worker.loads.under_way:
            yield_blocks(worker)
        if worker.outgoing_handoffs:
            yield_leases(worker, self.now)

    def _give_up_overdue_loads(self) -> None:
        for worker in {**self._timed, **self._touched}:
            if not self._is_attached(worker):
                continue
            end_late_handoffs(worker, self.now)
            if worker.loads.under_way:
                give_up_overdue(worker, self.counts.loads, self.now)

    def _look_again(self, worker: WorkerState) -> None:
        """It was planned for, and can do no more now: note what time may change."""
        is_waiting = len(worker.waiting) > 0 or (worker.is_draining and worker.num_sequences > 0)
        for members, is_one in (
            (self._stuck, is_waiting and not worker.outstanding),
            (self._timed, bool(worker.incoming_handoffs or worker.loads.under_way)),
        ):
            if is_one:
                members[worker] = None
            else:
                members.pop(worker, None)

    def _is_attached(self, worker: WorkerState) -> bool:
        return self.workers.get(worker.info.worker_id) is worker
