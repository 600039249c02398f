"""What a worker without a model guesses: how many drafts it offers, and how many of them are right.

Both follow from the plan alone, so that a history that is run again is the same.
"""

from collections.abc import Mapping

from simulation.model.answers import Slot

from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult


def grants_of(plan: StepPlan) -> dict[int, int]:
    """The drafts that each slot may verify."""
    return dict(zip(plan.slots, plan.num_drafts, strict=True)) if plan.num_drafts else {}


def num_right_of(plan: StepPlan, slot: int, granted: int) -> int:
    """How many drafts of a slot are right: all, some, or none."""
    return (plan.step_id * 5 + slot * 3) % (granted + 1)


def offers(slots: Mapping[int, Slot], plan: StepPlan, result: StepResult, most: int) -> list[int]:
    """The drafts that there are behind the newest token of each slot that answers; [] for none."""
    found = [
        0 if _is_special(slots[slot]) else max(0, (plan.step_id * 7 + slot * 11) % (most + 4) - 3)
        for slot in result.slots
    ]
    return found if most and any(found) else []


def _is_special(state: Slot) -> bool:
    new = state.new
    return new.is_beam or new.pooling is not None
