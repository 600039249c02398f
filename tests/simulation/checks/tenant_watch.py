"""How evenly tenants are served, by books of its own: what plans compute and sample for each."""

from collections import defaultdict
from itertools import combinations

from simulation.coverage import Coverage, Violation
from simulation.world import TENANT_WEIGHTS

from pagewire_scheduler.core.queueing.policy import FairBetweenTenants
from pagewire_scheduler.core.queueing.tenant_queue import TenantLedger
from pagewire_scheduler.core.scheduler_core import SchedulerCore
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState

SAMPLE_COST = 2
"""An output token weighs as much as two of a prompt."""
MAX_UNFAIRNESS = 900.0
"""Weighted tokens that one of two tenants may get more than the other while both wait: a large
sequence is passed 16 times at most each of the four times that it starts (ADR 10), by the crowd's
small requests, of 14 tokens at most. The most in 10 000 histories was 727."""

Pair = tuple[str, str]


class TenantWatch:
    """The books of one scheduler's life."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage
        self._served: defaultdict[str, float] = defaultdict(float)
        self._last_steps: dict[WorkerState, int] = {}
        self._ledger: TenantLedger | None = None
        self._wrong_charge: str | None = None
        self._begun: dict[Pair, float] = {}

    def planned(self, core: SchedulerCore) -> None:
        """Take up the plans made since the last call, and compare the tenants that wait."""
        self._watch_ledger(core)
        if self._wrong_charge is not None:
            raise Violation("tenants_charged", self._wrong_charge)
        for worker in core.workers.values():
            self._take_steps(worker)
        waiting = _waiting(core)
        pairs = {pair: self._difference(pair) for pair in combinations(sorted(waiting), 2)}
        self._begun = {pair: self._begun.get(pair, pairs[pair]) for pair in pairs}
        for pair, difference in pairs.items():
            spread = abs(difference - self._begun[pair])
            peaks = self._coverage.peaks
            peaks["largest unfairness"] = max(peaks["largest unfairness"], int(spread))
            self._coverage.invariants["tenants_share"] += 1
            if spread > MAX_UNFAIRNESS:
                raise Violation("tenants_share", f"{spread:.0f} tokens between {pair}")

    def _watch_ledger(self, core: SchedulerCore) -> None:
        """Compare each charge of the policy's ledger to what it should be."""
        if not isinstance(core.policy, FairBetweenTenants) or core.policy.ledger is self._ledger:
            return
        ledger = self._ledger = core.policy.ledger
        charge = ledger.charge

        def checked(tenant: str, num_tokens: int) -> None:
            wanted = ledger.served(tenant) + num_tokens / TENANT_WEIGHTS.get(tenant, 1.0)
            charge(tenant, num_tokens)
            self._coverage.invariants["tenants_charged"] += 1
            if ledger.served(tenant) != wanted:
                self._wrong_charge = f"{ledger.served(tenant)} instead of {wanted} for {tenant!r}"

        ledger.charge = checked  # type: ignore[method-assign]

    def _difference(self, pair: Pair) -> float:
        return self._served[pair[0]] - self._served[pair[1]]

    def _take_steps(self, worker: WorkerState) -> None:
        last = self._last_steps.get(worker, 0)
        for step in worker.outstanding:
            if step.step_id > last:
                plan = step.plan
                rows = zip(step.sequences, plan.num_new_tokens, plan.samples, strict=True)
                for sequence, num_tokens, sample in rows:
                    tenant = sequence.request.submission.tenant
                    cost = num_tokens + SAMPLE_COST * sample
                    self._served[tenant] += cost / TENANT_WEIGHTS.get(tenant, 1.0)
                self._last_steps[worker] = step.step_id


def _waiting(core: SchedulerCore) -> set[str]:
    """The tenants that compete: with more workers than one, those who wait for one see others
    served by another."""
    heads: dict[str, Sequence] = {}
    for worker in core.workers.values() if len(core.workers) == 1 else ():
        for sequence in worker.waiting:
            tenant = sequence.request.submission.tenant
            if tenant not in heads or sequence.key < heads[tenant].key:
                heads[tenant] = sequence
    return set(heads)
