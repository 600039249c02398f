"""What a plan changes in the grammars that slots follow. Decides nothing."""

import numpy as np

from pagewire_worker.grammars.bitmask_source import BitmaskSource
from pagewire_worker.plan.step import StepPlan


def forget_grammars(grammars: BitmaskSource, plan: StepPlan, num_slots: int) -> None:
    """Drop grammars that are released, and what slots followed that are freed."""
    if plan.released_grammars:
        grammars.release(plan.released_grammars)
    freed = np.asarray(plan.freed_slots, dtype=np.int64)
    # A slot that does not exist is found when the plan is applied.
    for slot in freed[freed < num_slots].tolist():
        grammars.free(slot)


def follow_grammars(grammars: BitmaskSource, plan: StepPlan) -> None:
    """Tell of new requests and forks. Whom a failed plan installed is forgotten when the slot is
    filled again. Raises PlanError naming the slot whose grammar is not here."""
    for request in plan.new_requests:
        grammars.install(request)
    if len(plan.fork_slots):
        grammars.fork(
            np.asarray(plan.fork_slots, dtype=np.int64),
            np.asarray(plan.fork_sources, dtype=np.int64),
        )
