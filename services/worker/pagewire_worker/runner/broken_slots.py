"""Finds sequences whose numbers are not finite, and remembers their slots.

Such a sequence fails alone, and for good. Its logits, its keys and values, the log-probabilities
of its prompt and its vector are checked.
"""

import numpy as np

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import NO_SLOT, StepPlan
from pagewire_worker.batch.input_batch import PreparedStep
from pagewire_worker.runner.results import StepOutputs

REASON = (
    "the model computed values that are not finite (NaN or infinity) for this request; its weights "
    "or their type may not do for this prompt, and float16 overflows first"
)


def found_in(step: PreparedStep, outputs: StepOutputs) -> set[int]:
    """Return the slots whose own rows of a step are not finite.

    Rows behind a wrong draft are not rows of the sequence: what they compute is never read.
    """
    sampled, found, verified = outputs.sampled, set[int](), outputs.verified
    if sampled.faults is not None:
        is_faulty = sampled.faults.numpy() != 0
        if verified is not None:
            is_faulty &= verified.is_kept
        found.update(step.sampling_slots[is_faulty].tolist())
    if sampled.kv_faults is not None:
        is_faulty = sampled.kv_faults.numpy() != 0
        if verified is not None:
            is_faulty &= step.token_positions < step.accepted_ends(verified)
        found.update(step.token_slots[is_faulty].tolist())
    prompt, pooled = outputs.prompt, outputs.pooled
    if prompt is not None:
        owners = np.asarray(prompt.slots, dtype=np.int64).repeat(prompt.counts)
        found.update(owners[np.isnan(prompt.logprobs)].tolist())
    found.update(pooled.broken_slots)
    return found


class BrokenSlots:
    """Slots of sequences that are broken, as of the newest result that was read."""

    def __init__(self) -> None:
        self._slots: set[int] = set()

    def follow(self, plan: StepPlan, found: set[int]) -> tuple[int, ...]:
        """Add the slots `found` in the rows of `plan`, and return the broken slots of the plan.

        Plans come in the order in which they were run.
        """
        if not (self._slots or found):
            return ()
        self._slots.difference_update(request.slot for request in plan.new_sequences)
        for slot, source in zip(plan.fork_slots, plan.fork_sources, strict=True):
            # A fork has the blocks that its source writes in this very step.
            if int(source) in self._slots or int(source) in found:
                self._slots.add(int(slot))
            else:
                self._slots.discard(int(slot))
        self._slots |= found
        return tuple(slot for slot in map(int, plan.slots) if slot in self._slots)

    def clear(self) -> None:
        """Forget all."""
        self._slots.clear()


def places_of_others(plan: StepPlan, broken: tuple[int, ...]) -> Int64Array:
    """Return the places of the named blocks of `plan` that do not belong to `broken` slots.

    Returns no places if the plan does not name the owners of its blocks.
    """
    if len(plan.named_slots) == 0:
        return np.zeros(0, dtype=np.int64)
    owners = np.asarray(plan.named_slots, dtype=np.int64)
    return np.flatnonzero((owners == NO_SLOT) | ~np.isin(owners, broken))
