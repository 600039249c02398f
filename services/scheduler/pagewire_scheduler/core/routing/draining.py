"""Takes sequences away from a worker that drains or has lost a role. `core.routing.queues` chooses
the worker that they go to."""

from typing import Final

from pagewire_scheduler.core.data.settings import HandoffCounts
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.worker_info import Role
from pagewire_scheduler.core.planning.preemption import roll_back
from pagewire_scheduler.core.queueing.adapter_slots import take_adapting
from pagewire_scheduler.core.queueing.enqueue import enqueue, take_compiling
from pagewire_scheduler.core.routing.handoff_placement import choose_move, may_hand_off
from pagewire_scheduler.core.routing.queues import ModelQueues
from pagewire_scheduler.core.state.pairs import refusal
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import Phase, WorkerState
from pagewire_scheduler.core.transfers.handoffs import begin_move, end_handoff
from pagewire_scheduler.core.transfers.loading import take_loading

MAX_LEAVING: Final = 8
"""Sequences of a draining worker that are on their way elsewhere at a time."""


class Draining:
    """Moves sequences between the workers of `queues`."""

    def __init__(self, queues: ModelQueues, counts: HandoffCounts, *, is_caching: bool) -> None:
        self._queues = queues
        self._counts = counts
        self._is_caching = is_caching

    def drain(self, worker: WorkerState) -> None:
        """Place nothing new on `worker`; its waiting sequences move to other workers of the model.

        Suspects on trial stay until the trial is over.
        """
        worker.duty.is_draining = True
        self._queues.forget_takers(worker.info.model.name)
        worker.duty.is_drain_due = bool(worker.fault_isolation)
        if worker.duty.is_drain_due:
            return
        self.send_away(worker)
        for sequence in take_loading(worker):
            self._queues.place(sequence)

    def is_drained(self, worker: WorkerState) -> bool:
        """Return whether a draining worker has nothing left to do and keeps no blocks for
        others."""
        is_idle = not worker.num_sequences and not worker.outstanding
        return worker.duty.is_draining and is_idle and not worker.handoffs.outgoing

    def set_roles(self, worker: WorkerState, roles: frozenset[Role]) -> None:
        """Use `worker` for `roles` from now on.

        Running sequences end there; sequences that wait for a lost role move.
        """
        lost, worker.duty.roles = worker.duty.roles - roles, roles
        self._queues.forget_takers(worker.info.model.name)
        if lost and not worker.fault_isolation:
            self.send_away(worker)

    def migrate(self, worker: WorkerState, now: float) -> None:
        """Preempt running sequences of a draining worker, as fast as other workers have room.

        A sequence moves when no step names it any more. Beams and prefills stay.
        """
        if worker.fault_isolation:
            return
        num_leaving = len(worker.aside.returning)
        for sequence in list(worker.running):
            if sequence.is_beam or sequence.is_prefill or sequence.branch.followers:
                continue
            if num_leaving >= MAX_LEAVING or self._queues.target(sequence, worker) is None:
                break
            roll_back(worker, sequence)
            num_leaving += 1
        for sequence in sorted(worker.waiting, key=lambda sequence: sequence.key):
            if sequence.state is State.PREEMPTED and not sequence.is_prefill:
                self._move(worker, sequence, now)

    def send_away(self, worker: WorkerState) -> None:
        """Place sequences again that wait on `worker` for slots, an adapter, a grammar or a
        prefill."""
        for handoff in [one for one in worker.handoffs.outgoing if one.phase is Phase.QUEUED]:
            sequence = handoff.sequence
            handoff.receiver.aside.loading.remove(sequence)
            end_handoff(handoff)
            sequence.advance(State.WAITING)
            self._queues.place(sequence)
        for sequence in sorted(worker.waiting, key=lambda sequence: sequence.key):
            if sequence.state is State.WAITING and not sequence.is_prefill:
                worker.waiting.remove(sequence)
                self._queues.place(sequence)
        for sequence in (*take_compiling(worker), *take_adapting(worker)):
            self._queues.place(sequence)

    def _move(self, worker: WorkerState, sequence: Sequence, now: float) -> None:
        """Place a preempted sequence on another worker, with its blocks if that is faster."""
        target = self._queues.target(sequence, worker)
        if target is None:
            return
        worker.waiting.remove(sequence)
        sequence.advance(State.WAITING)
        sequence.times.num_migrations += 1
        self._counts.num_moves += 1
        is_possible = self._is_caching and may_hand_off(sequence)
        if is_possible and refusal(worker.info, target.info) is None:
            choice = choose_move(worker, target, sequence, now)
            if choice.verdict.is_load:
                begin_move(worker, target, sequence, choice.timeout, now)
                return
        enqueue(target, sequence)
