"""Waiting sequences and workers by model. A sequence waits on a worker of its model, or in a queue
of unplaced sequences while no worker can take it."""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Final

from pagewire_scheduler.core.costs.handoff_cost import HandoffReason
from pagewire_scheduler.core.data.queue_reasons import QueueReason, WaitClock
from pagewire_scheduler.core.data.settings import CoreSettings, HandoffCounts, HandoffPolicy
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.worker_info import BlockNaming, ModelInfo, Role
from pagewire_scheduler.core.parallel.beam_group import restart_group
from pagewire_scheduler.core.queueing.enqueue import enqueue
from pagewire_scheduler.core.queueing.losses import note_worker_loss
from pagewire_scheduler.core.queueing.policy import PlacementPolicy, QueuePolicy
from pagewire_scheduler.core.routing.balance import Balance, is_taker
from pagewire_scheduler.core.routing.handoff_placement import choose_source, has_room, may_hand_off
from pagewire_scheduler.core.routing.placement import by_kind
from pagewire_scheduler.core.state.capacity import max_len
from pagewire_scheduler.core.state.fault_isolation import unit_of
from pagewire_scheduler.core.state.queue_sums import QueueSums
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.waiting_queue import WaitingQueue
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.handoffs import begin_handoff, end_handoff, give_up_source
from pagewire_scheduler.core.transfers.pulls import forget_source
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex

MAX_NAMINGS: Final = 4
"""Ways to name blocks that are sent to frontends."""

MAX_SHAPES: Final = 4
"""Different shapes that adapters have to fit, sent to frontends."""

MAX_TARGETS: Final = 32
"""Workers that are looked at for who must leave another: those with the fewest sequences."""


class ModelQueues:
    """Workers and waiting sequences by served model name."""

    def __init__(
        self,
        *,
        policy: QueuePolicy,
        placement: PlacementPolicy,
        stores: RemoteIndex,
        settings: CoreSettings,
        counts: HandoffCounts,
        now: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._placement = placement
        self._stores = stores
        self._is_caching = settings.is_caching
        self._is_salted_by_tenant = not settings.is_sharing_between_tenants
        self._handoff: HandoffPolicy = settings.handoff
        self._counts = counts
        self._now = now
        self._workers: dict[str, list[WorkerState]] = {}
        self._takers: dict[tuple[str, Role | None], list[list[WorkerState]]] = {}
        self._samples: dict[str, list[WorkerState]] = {}
        self._balances: dict[str, Balance] = {}
        self._unplaced: dict[str, WaitingQueue] = {}
        self._sums = QueueSums()
        self.may_run: Callable[[Sequence], bool] = lambda sequence: True
        """Returns whether the weights that workers have now may compute a sequence."""

    @property
    def num_waiting(self) -> int:
        """Waiting sequences, placed or not."""
        return self._sums.num_choices

    @property
    def num_waiting_tokens(self) -> int:
        """Tokens of the waiting sequences; a prompt that several share counts once."""
        return self._sums.num_tokens

    @property
    def unplaced(self) -> Iterable[WaitingQueue]:
        """Queues of sequences that no worker can take, for audits."""
        return self._unplaced.values()

    def num_unplaced(self, model: str) -> int:
        """Return how many sequences of `model` no worker can take now."""
        return len(self._unplaced.get(model, ()))

    def unplaced_of(self, model: str) -> list[Sequence]:
        """Return the sequences of `model` that no worker can take now."""
        return list(self._unplaced.get(model, ()))

    def workers(self, model: str) -> list[WorkerState]:
        """Return the workers that serve `model`."""
        return self._workers.get(model, [])

    def samples(self, model: str) -> list[WorkerState]:
        """Return one worker of each kind that serves `model`.

        A request that fits none of them fits no worker at all.
        """
        if model not in self._samples:
            self._samples[model] = [kind[0] for kind in by_kind(self.workers(model))]
        return self._samples[model]

    def create_queue(self, reason: QueueReason = QueueReason.STEP) -> WaitingQueue:
        """Return an empty queue, whose sequences count here, too.

        Args:
            reason: What they wait for until a look finds more.
        """
        return self._policy.create_queue(QueueSums(self._sums), WaitClock(self._now, reason))

    def models(self) -> list[tuple[ModelInfo, int]]:
        """Return every model that has a worker, with the number of workers that take new
        sequences."""
        return [self._served(workers) for workers in self._workers.values()]

    def _served(self, workers: list[WorkerState]) -> tuple[ModelInfo, int]:
        adapting = [one.info for one in workers if one.info.max_adapters]
        namings = self._namings(workers)
        # One with older weights than others computes nothing.
        first = next((one for one in workers if one.duty.takes_new), workers[0])
        model = replace(
            first.info.model,
            namings=namings,
            is_exact=len(namings) == 1 and all(one.info.is_exact for one in workers),
            max_adapter_rank=min((one.max_adapter_rank for one in adapting), default=0),
            max_adapters=min((one.max_adapters for one in adapting), default=0),
            adapter_shapes=_first_few(one.adapter_shapes for one in adapting),
        )
        return model, sum(not worker.duty.is_draining for worker in workers)

    def _namings(self, workers: list[WorkerState]) -> tuple[BlockNaming, ...]:
        counts = Counter((one.info.layout_fingerprint, one.info.dtype) for one in workers)
        size = workers[0].info.model.block_size
        most = counts.most_common(MAX_NAMINGS)
        return tuple(BlockNaming(*way, size, self._is_salted_by_tenant) for way, _ in most)

    def add_worker(self, worker: WorkerState) -> list[Sequence]:
        """Enter a worker; take out and return, in order, the sequences that had no worker."""
        name = worker.info.model.name
        self._workers.setdefault(name, []).append(worker)
        self._balances.setdefault(name, Balance())
        self.forget_takers(name)
        return self.take_unplaced(name)

    def take_unplaced(self, model: str) -> list[Sequence]:
        """Take out and return, in order, the sequences of `model` that had no worker."""
        queue = self._unplaced.pop(model, self.create_queue())
        sequences = sorted(queue, key=lambda sequence: sequence.key)
        for sequence in sequences:
            queue.remove(sequence)
        return sequences

    def remove_worker(self, worker: WorkerState) -> list[Sequence]:
        """Take out a lost worker and queue its sequences elsewhere, as if it had never run them.

        Returns the sequences that lost too many workers to run again; they are in no queue.
        """
        name = worker.info.model.name
        is_for_sleep = worker.duty.sleep_order is not None and not worker.outstanding
        blamed = set() if is_for_sleep else note_worker_loss(worker)
        is_expected = worker.duty.is_draining or not worker.duty.takes_new
        worker.totals.num_lost_workers += not is_expected
        self._workers[name].remove(worker)
        self.forget_takers(name)
        self._balances[name].forget(worker)
        for handoff in list(worker.handoffs.outgoing):
            give_up_source(handoff, self._now())
        for handoff in list(worker.handoffs.incoming.values()):
            end_handoff(handoff)
        for other in self._workers[name]:
            forget_source(other, worker)
        if not self._workers[name]:
            del self._workers[name], self._balances[name]
        given_up: list[Sequence] = []
        for sequence in sorted(_sequences_of(worker), key=lambda sequence: sequence.key):
            if sequence.placement.queue is not None:
                sequence.placement.queue.remove(sequence)
            if sequence.is_beam:
                if sequence.state.is_finished:
                    continue  # it left with another beam of its search
                _forget_search(worker, sequence)
                waiting = sequence.request.sequences[0]
            else:
                _forget_worker(sequence)
                waiting = sequence
            if unit_of(waiting) in blamed:
                given_up.append(waiting)
                continue
            if is_for_sleep:
                waiting.times.note_move()
            else:
                worker.totals.num_requeued += waiting.is_asked_for
                waiting.times.note_lost_worker()
            self.place(waiting)
        return given_up

    def bound(self, sequence: Sequence) -> None:
        """Set the length at which `sequence` and its followers end, once the context is known."""
        submission = sequence.request.submission
        workers = self.workers(submission.model)
        if workers:
            length = max_len(submission, workers[0].info.model)
            for one in (sequence, *sequence.branch.followers):
                one.max_len = length

    def place(self, sequence: Sequence) -> None:
        """Queue a WAITING sequence on the best worker, or without a worker.

        Its prompt may be computed on another worker. A probe goes to its own worker only.
        """
        if sequence.placement.probe is not None:
            sequence.placement.probe.end(sequence, self._now())
            return
        self.bound(sequence)
        worker = self._choose(sequence) if self.may_run(sequence) else None
        if worker is None:
            model = sequence.request.submission.model
            if model not in self._unplaced:
                self._unplaced[model] = self.create_queue(self._lack_of(model))
            self._unplaced[model].push(sequence)
            sequence.forget_worker()
        elif not self._hand_off(worker, sequence):
            enqueue(worker, sequence)

    def place_again(self, sequence: Sequence) -> None:
        """Place a sequence that has no worker."""
        self._unplaced[sequence.request.submission.model].remove(sequence)
        self.place(sequence)

    def _lack_of(self, model: str) -> QueueReason:
        duties = [one.duty for one in self.workers(model)]
        is_asleep = all(one.sleep is not None or one.sleep_order is not None for one in duties)
        return QueueReason.SLEEP if duties and is_asleep else QueueReason.WORKER

    def forget_takers(self, model: str) -> None:
        """Forget which workers of `model` take sequences: one came, left, drains or changed its
        roles."""
        self._samples.pop(model, None)
        for key in [key for key in self._takers if key[0] == model]:
            del self._takers[key]

    def target(self, sequence: Sequence, worker: WorkerState) -> WorkerState | None:
        """Return a worker where a running sequence of `worker` could go on at once, or None."""
        others = (
            one for one in chain.from_iterable(self._takers_of(sequence)) if one is not worker
        )
        likely = heapq.nsmallest(MAX_TARGETS, others, key=lambda one: one.num_sequences)
        roomy = by_kind(one for one in likely if has_room(one, sequence))
        return self._placement.choose_worker(roomy, sequence)

    def _kinds(self, model: str, role: Role | None) -> list[list[WorkerState]]:
        """Return the workers that take new sequences, by kind: those of a role, or all for None."""
        key = model, role
        if key not in self._takers:
            takers = [one for one in self.workers(model) if one.duty.takes_new]
            meant = [one for one in takers if role is None or role in one.duty.roles]
            self._takers[key] = by_kind(meant)
        return self._takers[key]

    def _takers_of(self, sequence: Sequence) -> list[list[WorkerState]]:
        """Return the workers meant for `sequence`, by kind; all workers if none is meant for it."""
        model = sequence.request.submission.model
        return self._kinds(model, _role_for(sequence)) or self._kinds(model, None)

    def _is_meant(self, worker: WorkerState, sequence: Sequence) -> bool:
        """Return whether `worker` is meant for `sequence`."""
        role = _role_for(sequence)
        is_taker = role in worker.duty.roles and worker.duty.takes_new
        return is_taker or not self._kinds(sequence.request.submission.model, role)

    def _choose(self, sequence: Sequence) -> WorkerState | None:
        """Return the best worker for `sequence`, or None when it fits none."""
        takers = self._takers_of(sequence)
        worker = self._placement.choose_worker(takers, sequence)
        if worker is None:
            # None of those that are meant for it is large enough.
            others = self._kinds(sequence.request.submission.model, None)
            worker = self._placement.choose_worker(others, sequence)
        return worker

    def _hand_off(self, receiver: WorkerState, sequence: Sequence) -> bool:
        """Hand the prompt of `sequence` off if that is better; return whether it was."""
        is_possible = self._is_caching and self._handoff != "never" and not receiver.fault_isolation
        if not is_possible or not may_hand_off(sequence):
            return False
        now, workers = self._now(), self.workers(receiver.info.model.name)
        plan = choose_source(
            receiver, workers, sequence, self._stores, now, is_forced=self._handoff == "always"
        )
        if plan.verdict is not HandoffReason.ALONE:
            self._counts.verdicts[plan.verdict] += 1
        if plan.source is None or not plan.verdict.is_handoff:
            return False
        begin_handoff(plan.source, receiver, sequence, plan.timeout, now)
        return True

    def balance(self, worker: WorkerState) -> None:
        """Move waiting sequences to `worker` while it has slots and no sequence to start."""
        if is_taker(worker):
            self._pull(worker, self._balances[worker.info.model.name].some_donors())

    def share(self, worker: WorkerState) -> None:
        """Offer the sequences that `worker` did not start to idle workers, after its plan."""
        balance = self._balances[worker.info.model.name]
        balance.note(worker)
        if not len(worker.waiting) or worker.fault_isolation:
            return
        for taker in balance.some_takers():
            if is_taker(taker):
                self._pull(taker, [worker])

    def _pull(self, worker: WorkerState, donors: list[WorkerState]) -> None:
        for _ in range(worker.slots.num_free):
            sequence = self._placement.take_over(
                donors,
                worker,
                may_take=lambda one: (
                    not one.is_prefill and self._is_meant(worker, one) and self.may_run(one)
                ),
            )
            if sequence is None:
                return
            enqueue(worker, sequence)


def _role_for(sequence: Sequence) -> Role:
    return Role.PREFILL if sequence.request.is_pooling else Role.DECODE


def _sequences_of(worker: WorkerState) -> set[Sequence]:
    """Return every live sequence: running, waiting, or preempted with a step under way."""
    under_way = (sequence for step in worker.outstanding for sequence in step.sequences)
    live = {sequence for sequence in under_way if not sequence.state.is_finished}
    aside = {sequence for queue in worker.aside.queues for sequence in queue}
    return live | set(worker.running) | set(worker.waiting) | aside


def _forget_worker(sequence: Sequence) -> None:
    """Move a sequence back to WAITING; its pool is gone, so no block is released."""
    if sequence.state is not State.WAITING:
        sequence.advance(State.WAITING)
    sequence.forget_worker()


def _forget_search(worker: WorkerState, sequence: Sequence) -> None:
    """Reset a search, which starts again elsewhere; the pool and slots of its beams are gone."""
    for member in sequence.request.sequences:
        if member.state is State.RUNNING:
            member.forget_worker()
            member.advance(State.FINISHED_ABORTED)
    restart_group(worker, sequence.request)


def _first_few(shapes: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(one for one in dict.fromkeys(shapes) if one)[:MAX_SHAPES]
