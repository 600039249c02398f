"""Queueing policies: first come first served, or fair between tenants.

A policy creates the queues, counts served tokens, and decides which sequences a priority may
preempt.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from typing import Final, Protocol

from pagewire_scheduler.core.data.queue_reasons import WaitClock
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

# A request of priority p is served as if it had come p times this later. Younger requests of a
# better priority overtake it for a while, but not for ever: with time, age wins.
PRIORITY_SECONDS: Final = 10.0


def rank(submission: Submission, now: float) -> float:
    """Return the place of a request that arrives now among all others; smaller comes first.

    A request that is submitted again after the loss of its scheduler keeps its place.
    """
    return now - submission.age + submission.priority * PRIORITY_SECONDS


class QueuePolicy(Protocol):
    """Decides the order of the queue and the shares of tenants.

    Attributes:
        shares_steps: Whether tenants share the prompt tokens of a step; see `share_tokens`.
    """

    shares_steps: bool

    def create_queue(self, sums: QueueSums, clock: WaitClock) -> WaitingQueue:
        """Return an empty queue in the policy's order that is counted in `sums`, and timed."""
        ...

    def enter(self, tenant: str) -> None:
        """Count a request of `tenant` that was accepted."""

    def leave(self, tenant: str) -> None:
        """Count a request of `tenant` less."""

    def charge_admission(self, sequence: Sequence, num_tokens: int) -> None:
        """Charge the start of `sequence`, with `num_tokens` to compute."""

    def charge_samples(self, step: OutstandingStep) -> None:
        """Charge the tokens that a step, which is sent now, samples."""

    def charge_output(self, sequence: Sequence, num_tokens: int) -> None:
        """Charge `num_tokens` that `sequence` got besides: drafts that were right."""

    def is_preferred(self, sequence: Sequence, running: Sequence) -> bool:
        """Return whether `sequence` may take the place of `running` by its priority alone."""
        ...

    def displaceable(
        self, worker: WorkerState, sequence: Sequence, num_slots: int
    ) -> Iterator[Sequence]:
        """Yield the running sequences that may be preempted, in this order, so that `sequence` gets
        its tenant's share of the worker."""
        ...

    def share_tokens(self, num_tokens: int, wants: Mapping[str, int]) -> dict[str, int]:
        """Return the tokens of each tenant in a step of `num_tokens`, which is fewer than all
        tenants together want."""
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

        Sets the number of tokens that the sequence is expected to compute there.

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
        """Take a sequence that waits with one of `donors` to an idle `worker`; None without one.

        `may_take` returns whether `worker` may have a sequence.
        """
        ...


class FirstComeFirstServed:
    """Order of arrival, moved by the priority."""

    shares_steps = False

    def create_queue(self, sums: QueueSums, clock: WaitClock) -> WaitingQueue:
        """Return a queue in order of rank."""
        return WaitingQueue(sums, clock)

    def enter(self, tenant: str) -> None:
        """Do nothing: no work is counted."""

    def leave(self, tenant: str) -> None:
        """Do nothing: no work is counted."""

    def charge_admission(self, sequence: Sequence, num_tokens: int) -> None:
        """Do nothing: no work is counted."""

    def charge_samples(self, step: OutstandingStep) -> None:
        """Do nothing: no work is counted."""

    def charge_output(self, sequence: Sequence, num_tokens: int) -> None:
        """Do nothing: no work is counted."""

    def is_preferred(self, sequence: Sequence, running: Sequence) -> bool:
        """Compare priorities, whatever the tenants."""
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
    """The tenant with the least service comes first, then arrival and priority in the tenant."""

    shares_steps = True

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.ledger = TenantLedger(weights)

    def create_queue(self, sums: QueueSums, clock: WaitClock) -> WaitingQueue:
        """Return a queue that is ordered by the service of tenants."""
        return TenantQueue(self.ledger, sums, clock)

    def enter(self, tenant: str) -> None:
        """Keep the counter of `tenant` while it has requests."""
        self.ledger.hold(tenant)

    def leave(self, tenant: str) -> None:
        """Release the counter of `tenant`."""
        self.ledger.release(tenant)

    def charge_admission(self, sequence: Sequence, num_tokens: int) -> None:
        """Charge the whole prompt at once.

        Otherwise one tenant could start all its requests in one step.
        """
        self.ledger.charge(sequence.request.submission.tenant, num_tokens)

    def charge_samples(self, step: OutstandingStep) -> None:
        """Charge each output token."""
        for sequence in step.sampled:
            self.charge_output(sequence, 1)

    def charge_output(self, sequence: Sequence, num_tokens: int) -> None:
        """Charge each token that came as a right draft, too."""
        self.ledger.charge(sequence.request.submission.tenant, num_tokens * OUTPUT_TOKEN_COST)

    def is_preferred(self, sequence: Sequence, running: Sequence) -> bool:
        """Compare priorities within one tenant only."""
        tenant, other = sequence.request.submission.tenant, running.request.submission.tenant
        return tenant == other and _has_better_priority(sequence, running)

    def displaceable(
        self, worker: WorkerState, sequence: Sequence, num_slots: int
    ) -> Iterator[Sequence]:
        """Yield sequences of tenants with more than their share of the slots, or of the blocks."""
        return displaceable(worker, sequence, num_slots, self.ledger.weight)

    def share_tokens(self, num_tokens: int, wants: Mapping[str, int]) -> dict[str, int]:
        """Divide by weight; tokens that one tenant does not want go to the others."""
        return divide(num_tokens, wants, self.ledger.weight)


def create_policy(name: PolicyName, weights: Mapping[str, float]) -> QueuePolicy:
    """Return the policy of that name."""
    return FairBetweenTenants(weights) if name == "fair" else FirstComeFirstServed()


def _has_better_priority(sequence: Sequence, running: Sequence) -> bool:
    priority, other = sequence.request.submission.priority, running.request.submission.priority
    return priority < other
