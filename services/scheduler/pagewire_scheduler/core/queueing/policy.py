"""Queueing policies: first come first served, or fair between tenants.

A policy creates the queues, counts served tokens, and decides which sequences a priority may
preempt.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Final, Protocol

from pagewire_scheduler.core.data.settings import PolicyName
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.queueing.slot_shares import displaceable, divide
from pagewire_scheduler.core.queueing.tenant_queue import (
    OUTPUT_TOKEN_COST,
    TenantLedger,
    TenantQueue,
)
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.state.queue_sums import QueueSums
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.waiting_queue import WaitingQueue
from pagewire_scheduler.core.state.worker import WorkerState

# A request of priority p is served as if it had come p times this later. So it is overtaken by
# younger ones of a better priority for a while, but not for ever: with time, age wins.
PRIORITY_SECONDS: Final = 10.0


def rank(submission: Submission, now: float) -> float:
    """Return where a request that arrives now stands among all others; smaller comes first.

    One that comes again, after a loss of its scheduler, stands where it stood.
    """
    return now - submission.age + submission.priority * PRIORITY_SECONDS


class QueuePolicy(Protocol):
    """What a policy decides.

    Attributes:
        shares_steps: Whether tenants share the prompt tokens of a step; see `share_tokens`.
    """

    shares_steps: bool

    def create_queue(self, sums: QueueSums) -> WaitingQueue:
        """Return an empty queue in the policy's order that is counted in `sums`."""
        ...

    def enter(self, tenant: str) -> None:
        """A request of `tenant` was taken."""

    def leave(self, tenant: str) -> None:
        """A request of `tenant` was forgotten."""

    def charge_admission(self, sequence: Sequence, num_tokens: int) -> None:
        """`sequence` starts, with `num_tokens` to compute."""

    def charge_samples(self, step: OutstandingStep) -> None:
        """A step is sent that samples a token for some of its sequences."""

    def is_preferred(self, sequence: Sequence, running: Sequence) -> bool:
        """Whether `sequence` may take the place of `running` by its priority alone."""
        ...

    def displaceable(
        self, worker: WorkerState, sequence: Sequence, num_slots: int
    ) -> Iterator[Sequence]:
        """Yield who may have to wait again, in this order, so that `sequence` has its tenant's
        share of the worker."""
        ...

    def share_tokens(self, num_tokens: int, wants: Mapping[str, int]) -> dict[str, int]:
        """Return what each tenant may have of `num_tokens` of a step, which are fewer than all of
        them together want."""
        ...


class PreemptionPolicy(Protocol):
    """Picks the running sequences that may lose slot and blocks when memory is short."""

    def victims(self, worker: WorkerState, sequence: Sequence) -> Iterator[Sequence]:
        """Yield the running sequences that `sequence` may preempt, the first victim first.

        To let every sequence end, some order must hold: no two sequences preempt each other.
        """
        ...


class PlacementPolicy(Protocol):
    """Picks the worker of a sequence."""

    def choose_worker(
        self, kinds: Iterable[Seq[WorkerState]], sequence: Sequence
    ) -> WorkerState | None:
        """Return the best worker for `sequence`, or None when it fits none of them.

        Note in the sequence how many of its tokens are expected to be computed there.

        Args:
            kinds: Workers that take sequences; those of a kind differ in load and blocks only.
        """
        ...

    def take_over(
        self,
        donors: Iterable[WorkerState],
        worker: WorkerState,
        *,
        may_take: Callable[[Sequence], bool],
    ) -> Sequence | None:
        """Take a sequence that waits with one of `donors` for an idle `worker`; None for none.

        `may_take` says whether `worker` is meant for a sequence.
        """
        ...


class FirstComeFirstServed:
    """Order of arrival, moved by the priority."""

    shares_steps = False

    def create_queue(self, sums: QueueSums) -> WaitingQueue:
        """Return a queue in order of rank."""
        return WaitingQueue(sums)

    def enter(self, tenant: str) -> None:
        """Do nothing: no work is counted."""

    def leave(self, tenant: str) -> None:
        """Do nothing: no work is counted."""

    def charge_admission(self, sequence: Sequence, num_tokens: int) -> None:
        """Do nothing: no work is counted."""

    def charge_samples(self, step: OutstandingStep) -> None:
        """Do nothing: no work is counted."""

    def is_preferred(self, sequence: Sequence, running: Sequence) -> bool:
        """Priorities count between all."""
        return _has_better_priority(sequence, running)

    def displaceable(
        self, worker: WorkerState, sequence: Sequence, num_slots: int
    ) -> Iterator[Sequence]:
        """Yield nothing: there are no shares."""
        return iter(())

    def share_tokens(self, num_tokens: int, wants: Mapping[str, int]) -> dict[str, int]:
        """Return `wants`: older sequences take tokens first."""
        return dict(wants)


class FairBetweenTenants:
    """The tenant that was served least first; within a tenant, order of arrival and priority."""

    shares_steps = True

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.ledger = TenantLedger(weights)

    def create_queue(self, sums: QueueSums) -> WaitingQueue:
        """Return a queue that looks at what tenants were served."""
        return TenantQueue(self.ledger, sums)

    def enter(self, tenant: str) -> None:
        """Keep its counter while it has requests."""
        self.ledger.hold(tenant)

    def leave(self, tenant: str) -> None:
        """It may be at rest."""
        self.ledger.release(tenant)

    def charge_admission(self, sequence: Sequence, num_tokens: int) -> None:
        """Charge the whole prompt at once, else one tenant would start all it has in one step."""
        self.ledger.charge(sequence.request.submission.tenant, num_tokens)

    def charge_samples(self, step: OutstandingStep) -> None:
        """Charge each output token."""
        for sequence in step.sampled:
            self.ledger.charge(sequence.request.submission.tenant, OUTPUT_TOKEN_COST)

    def is_preferred(self, sequence: Sequence, running: Sequence) -> bool:
        """A tenant's priorities are its own affair."""
        tenant, other = sequence.request.submission.tenant, running.request.submission.tenant
        return tenant == other and _has_better_priority(sequence, running)

    def displaceable(
        self, worker: WorkerState, sequence: Sequence, num_slots: int
    ) -> Iterator[Sequence]:
        """Those of tenants that have more than their share of the slots, or of the blocks."""
        return displaceable(worker, sequence, num_slots, self.ledger.weight)

    def share_tokens(self, num_tokens: int, wants: Mapping[str, int]) -> dict[str, int]:
        """By weight; what one does not want is for the others."""
        return divide(num_tokens, wants, self.ledger.weight)


def create_policy(name: PolicyName, weights: Mapping[str, float]) -> QueuePolicy:
    """Return the policy of that name."""
    return FairBetweenTenants(weights) if name == "fair" else FirstComeFirstServed()


def _has_better_priority(sequence: Sequence, running: Sequence) -> bool:
    priority, other = sequence.request.submission.priority, running.request.submission.priority
    return priority < other
