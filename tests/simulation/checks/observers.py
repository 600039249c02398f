"""Watches the core while it works, for what no snapshot shows: who was started before whom, how
often a sequence gave way, who was refused, how evenly tenants were served."""

from collections import Counter
from types import TracebackType
from typing import Any
from unittest import mock

from simulation.checks.tenant_watch import TenantWatch
from simulation.coverage import Violation
from simulation.world import World

from pagewire_scheduler.core.data.events import Event, RejectedEvent
from pagewire_scheduler.core.data.state_machine import WAITING, State
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.planning.plan_builder import PlanBuilder
from pagewire_scheduler.core.planning.schedule_waiting import MAX_BLOCKED, MAX_SKIPS
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.state.capacity import MAX_PREEMPTIONS
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.errors import OverloadedError
from pagewire_shared.steps.plan import StepPlan

MAX_OVERTAKEN = MAX_SKIPS + 16
"""Younger sequences started on its worker while one waits there for what other younger ones hold:
the declared skips, and those that pass until steps under way give back what it needs."""
MAX_IDLE_PLANS = 20
"""Plans made while a slot, blocks and tokens for one that waits are free: room is being made for
one in front of it."""
MAX_NEEDLESS = 3
"""Younger sequences started on its worker although one that waits there would have fit."""

LoadDecision = tuple[bytes, int]


class Observers:
    """Counts what the sequences of one world do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._coverage = world.coverage
        self._patches: list[Any] = []
        self._overtaken: Counter[LoadDecision] = Counter()
        self._needless: Counter[LoadDecision] = Counter()
        self._evicted: Counter[LoadDecision] = Counter()
        self._idle_since: dict[LoadDecision, tuple[int, int, int]] = {}
        self._tenants: dict[SchedulerCore, TenantWatch] = {}

    def __enter__(self) -> "Observers":
        self._patch(Sequence, "advance", self._advanced)
        self._patch(PlanBuilder, "preempt", self._preempted)
        self._patch(SchedulerCore, "plan", self._planned)
        self._patch(SchedulerCore, "submit", self._submitted)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for patch in self._patches:
            patch.stop()

    def _patch(self, owner: type, name: str, observe: Any) -> None:
        original = getattr(owner, name)

        def method(target: Any, *args: Any) -> Any:
            result = original(target, *args)
            observe(result, target, *args)
            return result

        patch = mock.patch.object(owner, name, method)
        patch.start()
        self._patches.append(patch)

    def _advanced(self, _: None, sequence: Sequence, target: State) -> None:
        """9: first come first served up to declared skips, among those with equal rights."""
        worker, me = sequence.placement.worker, _choice(sequence)
        if target is not State.RUNNING:
            return
        self._overtaken.pop(me, None)
        self._needless.pop(me, None)
        # A fork has no table yet; it takes no turn of anybody.
        if worker is None or sequence.table is None:
            return
        tenant = sequence.request.submission.tenant
        is_fair = self._world.configuration.policy == "fair"
        for other in worker.waiting:
            if is_fair and other.request.submission.tenant != tenant:
                continue
            if other.key < sequence.key:
                self._coverage.invariants["order_of_service"] += 1
                if _may_have_room(worker, other, sequence):
                    self._count(self._overtaken, other, "most overtaken", MAX_OVERTAKEN)
                if _would_fit(worker, other):
                    self._count(self._needless, other, "most needlessly overtaken", MAX_NEEDLESS)

    def _count(self, counts: Counter[LoadDecision], passed: Sequence, what: str, most: int) -> None:
        counts[_choice(passed)] += 1
        count = counts[_choice(passed)]
        self._note(what, count)
        if count > most:
            raise Violation("order_of_service", f"{what}: {passed.key} was passed {count} times")

    def _preempted(self, _: None, builder: PlanBuilder, victim: Sequence) -> None:
        """10: nobody gives way more often than declared."""
        me = _choice(victim)
        self._evicted[me] += 1
        self._coverage.invariants["bounded_preemption"] += 1
        self._note("most preempted", self._evicted[me])
        if self._evicted[me] > MAX_PREEMPTIONS:
            raise Violation(
                "bounded_preemption", f"{victim.key} gave way {self._evicted[me]} times"
            )

    def _planned(self, _: StepPlan | None, core: SchedulerCore, worker_id: bytes) -> None:
        self._nobody_waits_for_nothing(core.workers[worker_id])
        if self._world.configuration.policy == "fair":
            self._tenants.setdefault(core, TenantWatch(self._coverage)).planned(core)

    def _submitted(
        self,
        events: list[Event],
        core: SchedulerCore,
        frontend_id: bytes,
        submission: Submission,
        now: float,
    ) -> None:
        for event in events:
            if isinstance(event, RejectedEvent) and isinstance(event.error, OverloadedError):
                self._refused(core, submission)

    def _nobody_waits_for_nothing(self, worker: WorkerState) -> None:
        """9: what would fit is not held up for long by what does not."""
        plan = worker.outstanding[-1].step_id if worker.outstanding else 0
        newest = worker.outstanding[-1].plan.num_new_tokens if worker.outstanding else []
        has_tokens = sum(newest) < worker.shared_step_tokens
        looked_at = [worker.waiting.at(index) for index in range(MAX_BLOCKED)]
        for sequence in worker.waiting:
            me = _choice(sequence)
            if sequence not in looked_at:
                self._idle_since.pop(me, None)
                continue
            if not has_tokens or not _would_fit(worker, sequence):
                self._idle_since.pop(me, None)
                continue
            life = worker.info.incarnation
            before, since, last = self._idle_since.get(me, (life, plan, plan))
            if before != life or last < plan - 1:
                since = plan  # it was elsewhere meanwhile
            self._idle_since[me] = (life, since, plan)
            self._note("most plans waited for nothing", plan - since)
            if plan - since > MAX_IDLE_PLANS:
                detail = f"{sequence.key} was not started in {plan - since} plans"
                raise Violation("order_of_service", detail)

    def _refused(self, core: SchedulerCore, submission: Submission) -> None:
        """8: who is refused because many wait for a model came when many did, for the first
        time."""
        if submission.epoch or any(submission.emitted):
            raise Violation("one_end_each", "a stream that comes again is refused")
        num_waiting = sum(
            sequence.state in WAITING
            for request in core.requests.values()
            for sequence in request.sequences
            if request.submission.model == submission.model
        )
        num_new = len(submission.emitted) - sum(submission.is_finished)
        if num_waiting + num_new <= self._world.configuration.max_num_waiting:
            raise Violation("one_end_each", f"refused while only {num_waiting} wait")
        self._world.excuses.overloaded.add(submission.request_id)

    def _note(self, name: str, value: int) -> None:
        """Keep the largest value seen."""
        self._coverage.peaks[name] = max(self._coverage.peaks[name], value)


def _would_fit(worker: WorkerState, sequence: Sequence) -> bool:
    """Whether there are a slot and blocks for one that waits and needs nothing special."""
    if worker.fault_isolation or sequence.is_beam or sequence.fairness.num_preemptions:
        return False
    num_free = worker.pool.num_free - worker.reservations.num_blocks
    num_free -= len(worker.running) * len(worker.info.groups)
    width = len(worker.info.groups)
    needed = -(-len(sequence.tokens) // worker.info.model.block_size) * width
    return worker.slots.num_free > 0 and needed <= num_free


def _may_have_room(worker: WorkerState, sequence: Sequence, started: Sequence) -> bool:
    """Whether it would fit if the younger ones gave way, `started` just now among them; what older
    ones hold it must wait for."""
    if worker.fault_isolation or sequence.is_beam or sequence.fairness.num_preemptions:
        return False
    running = [*worker.running, started]
    younger = [one for one in running if one.key > sequence.key and not one.placement.is_guaranteed]
    held = Counter(block for one in younger if one.table for block in one.table.held)
    ref_counts = worker.pool.ref_counts
    num_freed = sum(ref_counts[block] == count for block, count in held.items() if block >= 0)
    num_free = worker.pool.num_free - worker.reservations.num_blocks + num_freed
    width = len(worker.info.groups)
    needed = -(-len(sequence.tokens) // worker.info.model.block_size) * width
    return needed + (len(running) - len(younger)) * width <= num_free


def _choice(sequence: Sequence) -> LoadDecision:
    submission = sequence.request.submission
    choice = -1 - sequence.choice if sequence.is_prefill else sequence.choice
    return submission.request_id + bytes([submission.epoch % 256]), choice
