"""Speculation: lets a worker verify drafts in a step, and takes over the right ones.

Drafts come last in a plan: they take tokens and blocks that nothing else of the step needs, and
preempt nothing. A step without offers costs nothing.
"""

import hashlib
from collections.abc import Sequence as Seq
from typing import Any, Final

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.submission import Submission
from pagewire_scheduler.core.planning.plan_builder import PlanBuilder
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.steps.result import ListResult

SCOPE_BYTES: Final = 16
MAX_STEP_DRAFTS: Final = 1024
"""Drafts of all sequences in a step: each may come back as a token with its alternatives."""


def grant_drafts(builder: PlanBuilder) -> None:
    """Let the worker verify drafts of the sequences in the plan, as far as it has room."""
    worker, plan = builder.worker, builder.plan
    if not worker.drafts or worker.outstanding or worker.fault_isolation:
        return
    granted = [0] * len(plan.slots)
    num_left = min(builder.num_tokens_left, MAX_STEP_DRAFTS)
    for index, sequence in enumerate(builder.sequences):
        wanted = min(worker.drafts.of(sequence), worker.info.max_drafts, num_left)
        # The token sampled behind the last draft is the last one that there may be.
        wanted = min(wanted, sequence.max_len - 1 - sequence.num_computed)
        if wanted > 0 and plan.samples[index]:
            granted[index] = _take_blocks(builder, index, wanted)
            num_left -= granted[index]
    if any(granted):
        plan.num_drafts.extend(granted)


def _take_blocks(builder: PlanBuilder, index: int, wanted: int) -> int:
    """Return how many of `wanted` drafts the blocks of a sequence of the plan have room for.

    More blocks are added to its table where there are enough free ones for all that runs.
    """
    worker, plan, sequence = builder.worker, builder.plan, builder.sequences[index]
    table = sequence.table
    if table is None or table.is_tail_shared:
        return 0
    block_size, num_groups = worker.info.model.block_size, worker.pool.num_groups
    room = len(table.blocks) * block_size - sequence.num_computed
    if room >= wanted:
        return wanted
    needed = -((room - wanted) // block_size)
    num_free = worker.num_free_for(sequence) - worker.num_kept_to_go_on
    is_spared = builder.is_short or sequence.placement.is_guaranteed or plan.num_new_blocks[index]
    if is_spared or num_free < needed * num_groups:
        return max(0, room)
    at = sum(plan.num_new_blocks[:index]) * num_groups
    plan.new_block_ids[at:at] = table.grow(needed)
    plan.num_new_blocks[index] = needed
    return wanted


def for_drafts(worker: WorkerState, submission: Submission) -> dict[str, Any]:
    """Return what a worker that speculates needs to know of a new sequence, besides the rest."""
    if not worker.info.max_drafts:
        return {}
    scope = hashlib.blake2b(submission.salt, digest_size=SCOPE_BYTES).digest()
    return {
        "draft_scope": scope if submission.salt else b"",
        "predicted_token_ids": submission.predicted_token_ids,
    }


def note_predicted(sampled: Seq[Sequence], counts: Seq[int], num_predicted: Seq[int]) -> None:
    """Count the drafts of a step that came from what the client predicted.

    Args:
        sampled: Sequences that sampled.
        counts: Their tokens, at least 1 each.
        num_predicted: Such drafts of each that were verified.
    """
    for sequence, count, predicted in zip(sampled, counts, num_predicted, strict=True):
        sequence.outcome.note_predicted(predicted, min(count - 1, predicted))


def note_offers(worker: WorkerState, step: OutstandingStep, result: ListResult) -> None:
    """Take over the drafts that a result, which has just been applied, offers."""
    offers = result.num_drafts or [0] * len(result.slots)
    for sequence, num_drafts in zip(step.sampled, offers, strict=True):
        is_single = not (sequence.is_beam or sequence.is_pooling)
        if sequence.state is State.RUNNING and is_single:
            worker.drafts.note(sequence, num_drafts)


def by_token(sampled: Seq[Sequence], counts: Seq[int]) -> list[Sequence]:
    """Return the sequence of each token of a step with drafts, in the order of the tokens.

    What the right drafts have computed counts. Each token is then applied like a sample.

    Args:
        sampled: Sequences that sampled.
        counts: Their tokens, at least 1 each.
    """
    owners: list[Sequence] = []
    for sequence, count in zip(sampled, counts, strict=True):
        owners += [sequence] * count
        if sequence.is_live:
            sequence.num_in_flight += count - 1
            # A preempted sequence computes everything once more.
            if sequence.state is State.RUNNING:
                sequence.num_computed += count - 1
    return owners
