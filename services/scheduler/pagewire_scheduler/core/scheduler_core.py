"""The facade of the pure scheduler: takes every event of a cell, and returns plans and tokens.
Knows neither clock nor network: the caller sets `now`."""

from collections.abc import Sequence as Seq
from dataclasses import replace

from pagewire_scheduler.core.data.events import Event, RejectedEvent
from pagewire_scheduler.core.data.settings import CoreCounts, CoreSettings
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.data.topology import Topology
from pagewire_scheduler.core.data.worker_info import ModelInfo, Role, WorkerInfo
from pagewire_scheduler.core.due_workers import DueWorkers
from pagewire_scheduler.core.kv_caches import KvCaches
from pagewire_scheduler.core.pair_probes import PairProbes
from pagewire_scheduler.core.parallel.forks import leaders
from pagewire_scheduler.core.planning.planner import plan_step
from pagewire_scheduler.core.planning.preemption import YoungestFirst
from pagewire_scheduler.core.queueing.deadlines import Deadlines
from pagewire_scheduler.core.queueing.losses import error_of_losses
from pagewire_scheduler.core.queueing.overload import OverloadGuard
from pagewire_scheduler.core.queueing.policy import PreemptionPolicy, create_policy, rank
from pagewire_scheduler.core.results.apply import apply_result
from pagewire_scheduler.core.results.finish import (
    end_request,
    end_sequence,
    end_with_followers,
    stop_reason_of,
)
from pagewire_scheduler.core.routing.admission import admit, check_fits, check_submission
from pagewire_scheduler.core.routing.draining import Draining
from pagewire_scheduler.core.routing.placement import SoonestFirstToken
from pagewire_scheduler.core.routing.queues import ModelQueues
from pagewire_scheduler.core.routing.resubmit import (
    end_abandoned,
    held_request,
    is_resend,
    renew,
    resend_positions,
)
from pagewire_scheduler.core.routing.sleeping import Sleeping
from pagewire_scheduler.core.routing.updating import Updating
from pagewire_scheduler.core.state.frontend import (
    FrontendState,
    Held,
    finished_event,
    resend,
)
from pagewire_scheduler.core.state.grammars import GrammarId
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_scheduler.core.state.request_creation import create_request
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.topology import topology_of
from pagewire_scheduler.core.transfers.handoffs import complete_prefill
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_scheduler.core.worker_answers import take_adapter, take_grammar
from pagewire_shared.errors import PagewireError
from pagewire_shared.identity.ids import RequestId
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import ListResult


class SchedulerCore:
    """The state of one cell. Every method is synchronous and returns what must be sent.

    Attributes:
        now: The caller's clock; the caller sets it before each call.
        workers: The attached workers, by id.
        due: The workers to plan for.
        stores: The names of the blocks that KV stores have.
        queues: Workers and waiting sequences by model.
        draining: Moves sequences off workers that drain or lose a role.
        sleeping: Lets workers sleep and wakes them.
        updating: Exchanges the weights of models.
        kv_caches: Loads, pulls and resets of cached blocks.
        probes: Probes of pairs of workers.
        load: The limits on what the cell takes on.
    """

    def __init__(self, settings: CoreSettings) -> None:
        self.settings = settings
        self.now = 0.0
        self.counts = CoreCounts()
        self.workers: dict[bytes, WorkerState] = {}
        self.due = DueWorkers(self.workers)
        self.stores = RemoteIndex(num_copies=settings.num_copies)
        self.policy = create_policy(settings.policy, settings.tenant_weights)
        self.preemption: PreemptionPolicy = YoungestFirst()
        is_caching, moves = settings.is_caching, self.counts.handoffs
        self.queues = ModelQueues(
            policy=self.policy,
            placement=SoonestFirstToken(self.stores, is_caching=is_caching),
            stores=self.stores,
            settings=settings,
            counts=moves,
            now=self._clock,
        )
        self.draining = Draining(self.queues, moves, is_caching=is_caching)
        self.sleeping = Sleeping(self.workers, self.queues, self.draining, self._clock)
        self.kv_caches = KvCaches(
            self.workers, self.stores, self.counts, self._clock, settings=settings
        )
        self.probes = PairProbes(
            self.workers, lambda: self.settings.generation, self._clock, is_caching=is_caching
        )
        self.requests: dict[RequestId, Request] = {}
        self.updating = Updating(self.queues, self.draining, self.requests, self._clock)
        self.frontends: dict[bytes, FrontendState] = {}
        self.load = OverloadGuard(settings.limits)
        self._deadlines = Deadlines(self.requests)
        self._num_arrivals = 0

    def _clock(self) -> float:
        return self.now

    def set_generation(self, generation: int) -> None:
        """Set the generation of workers that attach from now on."""
        if generation != self.settings.generation:
            self.settings = replace(self.settings, generation=generation)

    # Workers

    def attach_worker(self, info: WorkerInfo) -> list[Event]:
        """Add a worker with an empty batch; an earlier attach of it must have ended."""
        assert info.worker_id not in self.workers, "a worker attaches twice"
        worker = WorkerState(
            info=info,
            waiting=self.queues.create_queue(),
            totals=self.counts.of(info.model.name),
            settings=self.settings,
            touched=self.due.touched,
        )
        worker.touch()
        self.workers[info.worker_id] = worker
        unplaced = self.queues.add_worker(worker)
        self.updating.note_attach(worker)
        return self.enter(unplaced)

    def detach_worker(self, worker_id: bytes) -> list[Event]:
        """Forget a worker and its steps; its sequences run elsewhere and keep their tokens, but
        requests that lost too many workers fail."""
        ended: list[Sequence] = []
        lost = self.workers.pop(worker_id)
        self.due.forget(lost)
        for sequence in self.queues.remove_worker(lost):
            error = error_of_losses(sequence.request)
            ended.extend(end_with_followers(sequence, State.FINISHED_FAILED, error))
        ended.extend(self.updating.note_detach(lost))
        return self.conclude(ended)

    def drain_worker(self, worker_id: bytes) -> None:
        """Place nothing new on a worker; its sequences move or run to their end."""
        worker = self.workers[worker_id]
        worker.touch()
        self.draining.drain(worker)

    def is_drained(self, worker_id: bytes) -> bool:
        """Return whether a worker that is to end has nothing left, nor blocks for others."""
        worker = self.workers[worker_id]
        return worker.duty.sleep_order is None and self.draining.is_drained(worker)

    def set_roles(self, worker_id: bytes, roles: frozenset[Role]) -> None:
        """Use a worker for `roles` from now on; sequences that run there end there."""
        assert roles, "a worker without a role"
        worker = self.workers[worker_id]
        worker.touch()
        self.draining.set_roles(worker, roles)

    def topology(self) -> Topology:
        """Return the workers and which pairs of them exchange blocks."""
        return topology_of(self.workers, self.queues, self.settings, self.stores, self.counts)

    def models(self) -> list[tuple[ModelInfo, int]]:
        """Return the models of attached workers, with the number of workers."""
        return self.queues.models()

    def plan(self, worker_id: bytes) -> StepPlan | None:
        """Return the next plan of a worker, or None when it has no credit or nothing to do."""
        worker = self.workers[worker_id]
        self.due.touched.pop(worker, None)
        plan = self._plan(worker)
        if plan is None:
            self.queues.share(worker)
            self.due.note_planned(worker)
        return plan

    def _plan(self, worker: WorkerState) -> StepPlan | None:
        if worker.duty.is_still:
            return None
        if not worker.has_credit:
            self.kv_caches.order_loads(worker)  # they run beside the steps that are out
            return None
        if worker.duty.is_drain_due and not worker.fault_isolation:
            self.draining.drain(worker)
        if worker.duty.is_draining:
            self.draining.migrate(worker, self.now)
        self.queues.balance(worker)
        self.kv_caches.order_loads(worker)
        builder = plan_step(
            worker,
            worker.generation,
            self.policy,
            self.preemption,
            self.now,
            is_caching=self.settings.is_caching,
        )
        self.kv_caches.begin_pulls(worker, builder.found)
        self.counts.num_steps += builder.is_sent
        self.counts.num_preemptions += len(builder.preempted)
        if not builder.is_sent:
            self.kv_caches.yield_blocks(worker)
            return None
        return builder.plan

    def apply(self, worker_id: bytes, result: ListResult) -> list[Event]:
        """Apply a result; return the events for frontends.

        A result of another generation or incarnation, or of an unknown step, is dropped.

        Raises:
            WireError: The result contradicts its plan; the worker must be cut off.
        """
        worker = self.workers[worker_id]
        worker.touch()
        expected = worker.outstanding[0].step_id if worker.outstanding else None
        identity = (result.generation, result.incarnation, result.step_id)
        if identity != (worker.generation, worker.info.incarnation, expected):
            self.counts.num_dropped_results += 1
            return []
        applied = apply_result(worker, result, self.policy, self.now)
        for prefill in applied.prefilled:
            complete_prefill(worker, prefill, self.now)
        finished = self.conclude(applied.finished)
        output: list[Event] = [*applied.prompts, *applied.tokens, *applied.vectors]
        return [*applied.begun, *applied.timelines, *output, *finished]

    def note_grammar(
        self, worker_id: bytes, grammar_id: GrammarId, error: PagewireError | None
    ) -> list[Event]:
        """Take the answer about a grammar; with an error the sequences that wait for it fail."""
        worker = self.workers[worker_id]
        worker.touch()
        return self.conclude(take_grammar(worker, grammar_id, error))

    def note_adapter(self, worker_id: bytes, load: int, error: PagewireError | None) -> list[Event]:
        """Take the answer to the load of an adapter, as that about a grammar."""
        worker = self.workers[worker_id]
        worker.touch()
        return self.conclude(take_adapter(worker, load, error, self.now))

    # Frontends

    def attach_frontend(
        self, frontend_id: bytes, held: Seq[Held], *, is_same_generation: bool
    ) -> tuple[list[int], list[Event]]:
        """Attach a frontend, perhaps again; return the handles that go on and the events to resend.

        Requests that the frontend does not list are aborted. All requests are aborted if its last
        attach was to another generation.
        """
        frontend = self.frontends.setdefault(frontend_id, FrontendState(frontend_id))
        frontend.lease_end = float("inf")
        resumed: list[int] = []
        events: list[Event] = []
        probe_blocks: set[RequestId] = set()
        for entry in held if is_same_generation else ():
            request = frontend.requests.get(entry.request_id)
            if request is None or not is_resend(request, entry.epoch, entry.next_positions):
                continue
            frontend.listen(request, entry.handle)
            end_abandoned(request, entry.next_positions)
            probe_blocks.add(entry.request_id)
            resumed.append(entry.handle)
            events.extend(resend(request, entry.next_positions))
            self._forget_if_finished(request)
        for request_id, request in list(frontend.requests.items()):
            if request_id not in probe_blocks:
                self._drop(request)
        return resumed, events

    def detach_frontend(self, frontend_id: bytes, now: float) -> None:
        """Keep the requests of a frontend for a lease; they run on without a reader."""
        self.frontends[frontend_id].leave(now, self.settings.lease_seconds)

    def submit(self, frontend_id: bytes, submission: Submission, now: float) -> list[Event]:
        """Accept a request, or resend a known one. A refusal is an event, not an exception."""
        self.now = now
        frontend = self.frontends[frontend_id]
        try:
            check_submission(submission)
            known = held_request(self.requests, self.frontends, frontend, submission)
            if known is not None:
                if known.submission.epoch == submission.epoch:
                    return self._resend(known, submission)
                self._drop(known)
            if samples := self.queues.samples(submission.model):
                check_fits(submission, samples)
            account = self.load.admit(submission)
        except PagewireError as error:
            self.counts.num_rejected += 1
            return [RejectedEvent.of(frontend_id, submission, error)]
        if known is not None:
            request = renew(known, submission)
        else:
            self._num_arrivals += 1
            place = (self._num_arrivals, rank(submission, now))
            request = create_request(submission, frontend_id, *place)
        request.is_admitted = bool(self.queues.samples(submission.model))
        request.arrived_at = now
        self.load.enter(request, account)
        self.policy.enter(submission.tenant)
        self.requests[request.request_id] = request
        frontend.enter(request)
        frontend.listen(request, submission.handle)
        self._deadlines.add(request)
        ended = zip(request.sequences, submission.is_finished, strict=True)
        for sequence in [sequence for sequence, is_finished in ended if is_finished]:
            end_sequence(sequence, State.FINISHED_ABORTED)
        return self.enter([s for s in request.sequences if not s.state.is_finished])

    def abort(self, frontend_id: bytes, handle: int, choice: int | None) -> None:
        """End a request, or one choice of it, without an event. Unknown requests are ignored."""
        request = self.frontends[frontend_id].handles.get(handle)
        if request is None or (request.is_beam and choice is not None):
            return  # the beams of a search are no choices yet
        if choice is None:
            end_request(request, State.FINISHED_ABORTED, None)
        elif choice < len(request.sequences) and request.sequences[choice].is_live:
            end_sequence(request.sequences[choice], State.FINISHED_ABORTED)
        self._forget_if_finished(request)

    def tick(self, now: float) -> list[Event]:
        """End requests past their deadline, and requests of frontends past their lease."""
        self.now = now
        self.load.tick(now)
        self.kv_caches.give_up_overdue(self.due.with_deadlines())
        self.due.retry_stuck()
        self.sleeping.tick()
        self.updating.tick()
        events: list[Event] = []
        for request in self._deadlines.pop_expired(now):
            error = self.sleeping.error_of_deadline(request)
            events.extend(self.conclude(end_request(request, State.FINISHED_ABORTED, error)))
        for frontend in [f for f in self.frontends.values() if f.lease_end <= now]:
            for request in list(frontend.requests.values()):
                self._drop(request)
            del self.frontends[frontend.frontend_id]
        return events

    # Inside

    def enter(self, sequences: list[Sequence]) -> list[Event]:
        """Queue sequences that are to run; end sequences that cannot or need not run."""
        ended: list[Sequence] = []
        for sequence in leaders(sequences):
            self.queues.bound(sequence)
            # Tokens emitted in an earlier life may be all there is.
            workers = self.queues.samples(sequence.request.submission.model)
            error = admit(sequence, workers) or self.updating.error_of(sequence)
            state = stop_reason_of(sequence) if error is None else State.FINISHED_FAILED
            if state is None:
                self.queues.place(sequence)
            else:
                ended.extend(end_with_followers(sequence, state, error))
        return self.conclude(ended)

    def _resend(self, request: Request, submission: Submission) -> list[Event]:
        positions = resend_positions(submission)
        self.frontends[request.frontend_id].listen(request, submission.handle)
        end_abandoned(request, positions)
        events = resend(request, positions)
        self._forget_if_finished(request)
        return events

    def conclude(self, ended: list[Sequence]) -> list[Event]:
        """Return the events of sequences that have ended, and forget their requests."""
        events: list[Event] = []
        for sequence in ended:
            event = finished_event(sequence)
            if event is not None:
                events.append(event)
            self._forget_if_finished(sequence.request)
        return events

    def _forget_if_finished(self, request: Request) -> None:
        # While its frontend is away a finished request is kept: the frontend will ask for its end.
        if request.is_finished and request.handle is not None:
            self._forget(request)

    def _drop(self, request: Request) -> None:
        end_request(request, State.FINISHED_ABORTED, None)
        self._forget(request)

    def _forget(self, request: Request) -> None:
        if self.requests.pop(request.request_id, None) is not None:
            self.load.leave(request)
            self.policy.leave(request.submission.tenant)
            self.frontends[request.frontend_id].forget(request)
            # All have ended. Without the cycle they go at once, and not with a full collection.
            request.sequences = []
