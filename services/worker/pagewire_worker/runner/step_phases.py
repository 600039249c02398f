"""Interface by which a step says where it is, for a profile."""

from typing import Final, Protocol

from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.batch.input_batch import PreparedStep


class StepPhases(Protocol):
    """Follows the steps of a model runner, in the model thread."""

    def begin(self, plan: StepPlan) -> None:
        """Note that the launch of a plan begins, with its changes of slots."""

    def mark(self, phase: str) -> None:
        """Note that a phase begins, and ends the one before."""

    def forward(self, step: PreparedStep) -> None:
        """Note that the model begins to compute a step."""

    def end(self) -> None:
        """Note that the model thread is done with a step, for now."""


class NoPhases:
    """Notes nothing."""

    def begin(self, plan: StepPlan) -> None:
        """Note nothing."""

    def mark(self, phase: str) -> None:
        """Note nothing."""

    def forward(self, step: PreparedStep) -> None:
        """Note nothing."""

    def end(self) -> None:
        """Note nothing."""


NO_PHASES: Final = NoPhases()
