"""The model runner as an attach sees it, and the one of a worker that sleeps."""

from typing import Protocol

from pagewire_shared.errors import WireError
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.runner.audit import SlotAudit
from pagewire_worker.runner.step_in_flight import StepInFlight


class NamedBlocks(Protocol):
    """KV blocks with names."""

    def held_names(self) -> dict[int, bytes]:
        """Return the names of VALID blocks by their ids, the oldest first."""
        ...


class PlanRunner(Protocol):
    """Runs plans, in the model thread; see ModelRunner."""

    @property
    def blocks(self) -> NamedBlocks:
        """The KV blocks."""
        ...

    def launch(self, plan: StepPlan) -> StepInFlight:
        """Start a plan."""
        ...

    def collect(self, in_flight: StepInFlight) -> StepResult:
        """Return the result of the oldest plan under way."""
        ...

    def propose_drafts(self) -> None:
        """Compute the drafts that the last result has announced."""
        ...

    def drop_slots(self) -> None:
        """Forget all sequences."""
        ...

    def audit(self) -> SlotAudit:
        """Walk all slots."""
        ...


class SleepingRunner:
    """Holds nothing, and refuses plans."""

    @property
    def blocks(self) -> NamedBlocks:
        """No blocks."""
        return self

    def held_names(self) -> dict[int, bytes]:
        """Return no names."""
        return {}

    def launch(self, plan: StepPlan) -> StepInFlight:
        """Raise WireError."""
        raise WireError(f"plan {plan.step_id} came to a worker that sleeps")

    def collect(self, in_flight: StepInFlight) -> StepResult:
        """Raise WireError: nothing is under way."""
        raise WireError("a worker that sleeps has no steps")

    def propose_drafts(self) -> None:
        """Have no drafts."""

    def drop_slots(self) -> None:
        """Have nothing to forget."""

    def audit(self) -> SlotAudit:
        """Return an audit of nothing."""
        return SlotAudit((), 0, 0, ())
