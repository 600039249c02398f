"""Finds the row of a step whose logits a slot samples from. Handles indices only, no tensors.

A slot that is forked in a plan may sample in the same step without computing anything. The last
chunk of a prompt runs once for all choices; each choice draws from its logits with its own noise.
"""

import numpy as np

from pagewire_worker.plan.step import Int64Array, PlanError, StepPlan


def logits_rows(plan: StepPlan, ends: Int64Array) -> Int64Array:
    """Return per scheduled slot the index of the scheduled slot whose logits it uses.

    A slot that computes no token uses the logits of its fork source, any other slot its own.

    Args:
        ends: Tokens computed per scheduled slot after the step, [slots].

    Raises:
        PlanError: A slot computes nothing and cannot sample from its source.
    """
    num_new = np.asarray(plan.num_new_tokens, dtype=np.int64)
    rows = np.arange(len(num_new))
    idle = np.flatnonzero(num_new == 0)
    if len(idle) == 0:
        return rows
    slots = np.asarray(plan.slots, dtype=np.int64).tolist()
    forks = np.asarray(plan.fork_slots, dtype=np.int64).tolist()
    sources = np.asarray(plan.fork_sources, dtype=np.int64).tolist()
    source_of = dict(zip(forks, sources, strict=True))
    row_of = {slot: row for row, slot in enumerate(slots)}
    for row in idle.tolist():
        slot = slots[row]
        if slot not in source_of:
            raise PlanError(f"slots [{slot}]: nothing to compute", (slot,))
        if not plan.samples[row]:
            raise PlanError(f"slot {slot}: a fork that neither computes nor samples", (slot,))
        source = source_of[slot]
        source_row = row_of.get(source)
        # A source that is itself a fork continues as another sequence than the copied one.
        if source_row is None or source in source_of or not plan.samples[source_row]:
            raise PlanError(f"slot {slot}: its source {source} does not sample now", (slot,))
        if ends[source_row] != ends[row] or num_new[source_row] == 0:
            raise PlanError(f"slot {slot} is not where its source {source} samples", (slot,))
        rows[row] = source_row
    return rows
