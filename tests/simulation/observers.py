"""Watches the core while it works, for what no snapshot shows: who was started before whom, how
often a sequence gave way, how evenly tenants were served."""

from collections import Counter
from types import TracebackType
from typing import Any
from unittest import mock

from simulation.coverage import Violation
from simulation.world import World

from pagewire_scheduler.core.draft import Draft
from pagewire_scheduler.core.preemption import MAX_PREEMPTIONS
from pagewire_scheduler.core.queue_policy import FairBetweenTenants
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.starting import MAX_BLOCKED, MAX_SKIPS
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.worker_state import WorkerState

MAX_OVERTAKEN = MAX_SKIPS + 64
"""Younger sequences started on its worker while one waits there: the declared skips, and those that
pass while older ones hold what it needs, which end after at most a context each."""
MAX_IDLE_PLANS = 10
"""Plans made while a slot, blocks and tokens for one that waits are free: room is being made for
one in front of it."""
MAX_UNFAIRNESS = 600.0
"""Weighted tokens between the most and the least served of the tenants that wait: some requests of
the largest size, since whole prompts are charged at once and what does not fit is passed."""

Choice = tuple[bytes, int]


class Observers:
    """Counts what the sequences of one world do."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._coverage = world.coverage
        self._patches: list[Any] = []
        self._overtaken: Counter[Choice] = Counter()
        self._evicted: Counter[Choice] = Counter()
        self._idle_since: dict[Choice, tuple[int, int]] = {}

    def __enter__(self) -> "Observers":
        self._patch(Sequence, "advance", self._advanced)
        self._patch(Draft, "preempt", self._preempted)
        self._patch(SchedulerCore, "plan", self._planned)
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
            observe(target, *args)
            return result

        patch = mock.patch.object(owner, name, method)
        patch.start()
        self._patches.append(patch)

    def _advanced(self, sequence: Sequence, target: State) -> None:
        """9: first come first served up to declared skips, among those with equal rights."""
        worker, me = sequence.worker, _choice(sequence)
        if target is not State.RUNNING:
            return
        self._overtaken.pop(me, None)
        # A fork has no table yet; it takes no turn of anybody.
        if worker is None or sequence.table is None:
            return
        tenant = sequence.request.submission.tenant
        is_fair = self._world.configuration.policy == "fair"
        for other in worker.waiting:
            if is_fair and other.request.submission.tenant != tenant:
                continue
            if other.key < sequence.key:
                self._overtaken[_choice(other)] += 1
                self._coverage.invariants["order_of_service"] += 1
                count = self._overtaken[_choice(other)]
                self._note("most overtaken", count)
                if count > MAX_OVERTAKEN:
                    raise Violation("order_of_service", f"{other.key} was passed {count} times")

    def _preempted(self, draft: Draft, victim: Sequence) -> None:
        """10: nobody gives way more often than declared."""
        me = _choice(victim)
        self._evicted[me] += 1
        self._coverage.invariants["bounded_preemption"] += 1
        self._note("most preempted", self._evicted[me])
        if self._evicted[me] > MAX_PREEMPTIONS:
            raise Violation(
                "bounded_preemption", f"{victim.key} gave way {self._evicted[me]} times"
            )

    def _planned(self, core: SchedulerCore, worker_id: bytes) -> None:
        self._nobody_waits_for_nothing(core.workers[worker_id])
        self._tenants_share(core)

    def _nobody_waits_for_nothing(self, worker: WorkerState) -> None:
        """9: what would fit is not held up for long by what does not."""
        plan = worker.outstanding[-1].step_id if worker.outstanding else 0
        size = worker.info.model.block_size
        num_free = worker.pool.num_free - worker.reserve.num_blocks - len(worker.running)
        newest = worker.outstanding[-1].plan.num_new_tokens if worker.outstanding else []
        has_tokens = sum(newest) < worker.info.max_num_batched_tokens
        looked_at = [worker.waiting.at(index) for index in range(MAX_BLOCKED)]
        for sequence in worker.waiting:
            me = _choice(sequence)
            if sequence not in looked_at:
                self._idle_since.pop(me, None)
                continue
            is_possible = not (worker.trials or sequence.is_beam or sequence.num_preemptions)
            needed = -(-len(sequence.tokens) // size)
            is_full = not has_tokens or worker.num_free_slots < 1 or needed > num_free
            if not is_possible or is_full:
                self._idle_since.pop(me, None)
                continue
            life, since = self._idle_since.setdefault(me, (worker.info.incarnation, plan))
            if life != worker.info.incarnation:
                self._idle_since[me] = (worker.info.incarnation, plan)
                continue
            self._note("most plans waited for nothing", plan - since)
            if plan - since > MAX_IDLE_PLANS:
                detail = f"{sequence.key} was not started in {plan - since} plans"
                raise Violation("order_of_service", detail)

    def _tenants_share(self, core: SchedulerCore) -> None:
        """13: tenants that wait have been served about equally, by their weights."""
        if not isinstance(core.policy, FairBetweenTenants):
            return
        ledger = core.policy.ledger
        waiting = {
            sequence.request.submission.tenant
            for worker in core.workers.values()
            for sequence in worker.waiting
        }
        if len(waiting) < 2:
            return
        served = [ledger.served(tenant) for tenant in waiting]
        spread = max(served) - min(served)
        self._note("largest unfairness", int(spread))
        self._coverage.invariants["tenants_share"] += 1
        if spread > MAX_UNFAIRNESS:
            raise Violation("tenants_share", f"{spread:.0f} tokens between tenants that wait")

    def _note(self, name: str, value: int) -> None:
        """Keep the largest value seen."""
        self._coverage.peaks[name] = max(self._coverage.peaks[name], value)


def _choice(sequence: Sequence) -> Choice:
    submission = sequence.request.submission
    return submission.request_id + bytes([submission.epoch % 256]), sequence.choice
