"""Where waiting sequences stand: with a worker of their model, or, while none can take them, aside.
Owns the lists of workers per model; starts nothing."""

from collections.abc import Callable, Iterable, Iterator

from pagewire_scheduler.core.admission import max_len
from pagewire_scheduler.core.beam_group import restart_group
from pagewire_scheduler.core.core_settings import CoreSettings, HandoffCounts, HandoffPolicy
from pagewire_scheduler.core.enqueue import enqueue
from pagewire_scheduler.core.handoff_choice import HandoffVerdict
from pagewire_scheduler.core.handoff_placement import (
    choose_source,
    has_room,
    may_hand_off,
)
from pagewire_scheduler.core.handoffs import (
    begin_handoff,
    end_handoff,
    give_up_source,
)
from pagewire_scheduler.core.losses import note_loss
from pagewire_scheduler.core.placement import choose_worker, take_over
from pagewire_scheduler.core.pulls import forget_source
from pagewire_scheduler.core.queue_policy import QueuePolicy
from pagewire_scheduler.core.remote_index import RemoteIndex
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.roles import Role
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.trials import unit_of
from pagewire_scheduler.core.waiting_queue import WaitingQueue
from pagewire_scheduler.core.worker_info import ModelInfo
from pagewire_scheduler.core.worker_state import WorkerState


class ModelQueues:
    """Workers and waiting sequences by served model name."""

    def __init__(
        self,
        policy: QueuePolicy,
        stores: RemoteIndex,
        settings: CoreSettings,
        counts: HandoffCounts,
        now: Callable[[], float],
    ) -> None:
        self._policy = policy
        self._stores = stores
        self._is_caching = settings.is_caching
        self._handoff: HandoffPolicy = settings.handoff
        self._counts = counts
        self._now = now
        self._workers: dict[str, list[WorkerState]] = {}
        self._unplaced: dict[str, WaitingQueue] = {}

    @property
    def num_waiting(self) -> int:
        """Sequences that wait, wherever."""
        return sum(queue.num_choices for queue in self._all())

    @property
    def num_waiting_tokens(self) -> int:
        """Their tokens, those of a prompt that several wait for counted once."""
        return sum(queue.num_tokens for queue in self._all())

    @property
    def unplaced(self) -> Iterable[WaitingQueue]:
        """Queues of sequences that no worker can take, for audits."""
        return self._unplaced.values()

    def workers(self, model: str) -> list[WorkerState]:
        """Return the workers that serve `model`."""
        return self._workers.get(model, [])

    def models(self) -> list[tuple[ModelInfo, int]]:
        """Return every model with at least one worker, and how many take new sequences."""
        return [
            (workers[0].info.model, sum(not worker.is_draining for worker in workers))
            for workers in self._workers.values()
        ]

    def add_worker(self, worker: WorkerState) -> list[Sequence]:
        """Enter a worker; return, taken out and in order, the sequences that had none."""
        name = worker.info.model.name
        self._workers.setdefault(name, []).append(worker)
        queue = self._unplaced.pop(name, self._policy.create_queue())
        sequences = sorted(queue, key=lambda sequence: sequence.key)
        for sequence in sequences:
            queue.remove(sequence)
        return sequences

    def remove_worker(self, worker: WorkerState) -> list[Sequence]:
        """Take out a lost worker and queue its sequences elsewhere, as if it had never run them.

        Return, in no queue, those that are not to run again: they lost too many workers.
        """
        name = worker.info.model.name
        blamed = note_loss(worker)
        worker.totals.num_lost_workers += not worker.is_draining
        self._workers[name].remove(worker)
        for handoff in list(worker.giving):
            give_up_source(handoff, self._now())
        for handoff in list(worker.taking):
            end_handoff(handoff)
        for other in self._workers[name]:
            forget_source(other, worker)
        if not self._workers[name]:
            del self._workers[name]
        given_up: list[Sequence] = []
        for sequence in sorted(_sequences_of(worker), key=lambda sequence: sequence.key):
            if sequence.queue is not None:
                sequence.queue.remove(sequence)
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
            worker.totals.num_requeued += waiting.is_asked_for
            self.place(waiting)
        return given_up

    def bound(self, sequence: Sequence) -> None:
        """Set the length at which `sequence` and its followers end, once the context is known."""
        submission = sequence.request.submission
        workers = self.workers(submission.model)
        if workers:
            length = max_len(submission, workers[0].info.model)
            for one in (sequence, *sequence.followers):
                one.max_len = length

    def place(self, sequence: Sequence) -> None:
        """Queue a WAITING sequence with the best worker, or aside; perhaps have its prompt computed
        on another. A probe goes nowhere else."""
        if sequence.probe is not None:
            sequence.probe.end(sequence, self._now())
            return
        self.bound(sequence)
        worker = self._choose(sequence)
        if worker is None:
            model = sequence.request.submission.model
            self._unplaced.setdefault(model, self._policy.create_queue()).push(sequence)
            sequence.worker = None
        elif not self._hand_off(worker, sequence):
            enqueue(worker, sequence)

    def takers(self, sequence: Sequence) -> list[WorkerState]:
        """Return the workers that are meant for `sequence`; all when there is none."""
        workers = self.workers(sequence.request.submission.model)
        role = Role.PREFILL if sequence.request.is_pooling else Role.DECODE
        meant = [one for one in workers if role in one.roles and not one.is_draining]
        return meant or workers

    def target(self, sequence: Sequence, worker: WorkerState) -> WorkerState | None:
        """Return where a sequence could go on at once that runs on `worker`, or None."""
        takers = [one for one in self.takers(sequence) if one is not worker]
        roomy = [one for one in takers if has_room(one, sequence)]
        return choose_worker(roomy, sequence, self._stores, is_caching=self._is_caching)

    def _choose(self, sequence: Sequence) -> WorkerState | None:
        """Return the best worker for `sequence`, or None when it fits none."""
        takers = self.takers(sequence)
        worker = choose_worker(takers, sequence, self._stores, is_caching=self._is_caching)
        if worker is None:
            # None of those that are meant for it is large enough.
            others = self.workers(sequence.request.submission.model)
            worker = choose_worker(others, sequence, self._stores, is_caching=self._is_caching)
        return worker

    def _hand_off(self, receiver: WorkerState, sequence: Sequence) -> bool:
        """Have the prompt of `sequence` computed elsewhere if that is better; return whether."""
        is_possible = self._is_caching and self._handoff != "never" and not receiver.trials
        if not is_possible or not may_hand_off(sequence):
            return False
        now, workers = self._now(), self.workers(receiver.info.model.name)
        plan = choose_source(
            receiver, workers, sequence, self._stores, now, is_forced=self._handoff == "always"
        )
        if plan.verdict is not HandoffVerdict.ALONE:
            self._counts.verdicts[plan.verdict] += 1
        if plan.source is None or not plan.verdict.is_handoff:
            return False
        begin_handoff(plan.source, receiver, sequence, plan.timeout, now)
        return True

    def balance(self, worker: WorkerState) -> None:
        """Move waiting sequences to `worker` while it has slots and nothing of its own to start."""
        peers = self.workers(worker.info.model.name)
        if len(peers) < 2 or len(worker.waiting) or worker.is_draining or worker.trials:
            return
        for _ in range(worker.num_free_slots):
            sequence = take_over(
                peers,
                worker,
                self._stores,
                is_caching=self._is_caching,
                may_take=lambda one: not one.is_prefill and worker in self.takers(one),
            )
            if sequence is None:
                return
            enqueue(worker, sequence)

    def _all(self) -> Iterator[WaitingQueue]:
        for workers in self._workers.values():
            for worker in workers:
                yield worker.waiting
                yield worker.compiling
                yield worker.loading
                yield worker.resting
        yield from self._unplaced.values()


def _sequences_of(worker: WorkerState) -> set[Sequence]:
    """Return every live sequence: running, waiting, or preempted with a step under way."""
    under_way = (sequence for step in worker.outstanding for sequence in step.sequences)
    live = {sequence for sequence in under_way if not sequence.state.is_finished}
    aside = {*worker.compiling, *worker.loading, *worker.resting}
    return live | set(worker.running) | set(worker.waiting) | aside


def _forget_worker(sequence: Sequence) -> None:
    """Put back to WAITING; the pool that its blocks were in is gone, so nothing is released."""
    if sequence.state is not State.WAITING:
        sequence.advance(State.WAITING)
    sequence.worker = sequence.slot = sequence.table = None
    sequence.num_computed = sequence.num_in_flight = sequence.num_outstanding = 0


def _forget_search(worker: WorkerState, sequence: Sequence) -> None:
    """Let a search start again elsewhere; the pool and the slots of its beams are gone."""
    for member in sequence.request.sequences:
        if member.state is State.RUNNING:
            member.slot = member.table = None
            member.num_computed = member.num_outstanding = 0
            member.advance(State.FINISHED_ABORTED)
    restart_group(worker, sequence.request)
