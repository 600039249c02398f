"""Checks that a step result matches its plan. It changes no state."""

import numpy as np

from pagewire_scheduler.core.planning.left_out import expected_counts
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.errors import WireError
from pagewire_shared.steps.result import ListResult


def check_result(worker: WorkerState, step: OutstandingStep, result: ListResult) -> None:
    """Raise WireError unless `result` is a possible result of `step`."""
    plan = step.plan
    if result.failed_slots and not set(result.failed_slots) <= set(plan.slots):
        raise WireError(f"failed_slots of step {step.step_id} are not all in its plan")
    sampled = [slot for slot, sample in zip(plan.slots, plan.samples, strict=True) if sample]
    if result.slots != sampled:
        raise WireError(f"step {step.step_id} sampled slots {result.slots}, planned {sampled}")
    is_plain = not step.num_pooled and not step.left_out and result.counts == [1] * len(sampled)
    if not is_plain and not expected_counts(step, result.counts):
        raise WireError(
            f"step {step.step_id} must return one token per sampled slot, and right drafts"
        )
    if len(result.token_ids) != sum(result.counts):
        raise WireError(f"step {step.step_id} must return as many tokens as it counts")
    if result.num_drafts:
        _check_offers(worker, step, result)
    if result.num_predicted:
        _check_predicted(step, result)
    if result.given_up:
        _check_given_up(step, result)
    if len(result.vectors) != step.num_vector_bytes:
        raise WireError(f"step {step.step_id} must return one vector per pooled slot")
    if result.token_ids and max(result.token_ids) >= worker.info.model.vocab_size:
        raise WireError(f"step {step.step_id} returned a token outside the vocabulary")
    for name in ("logprobs", "ranks", "num_top"):
        if len(getattr(result, name)) not in (0, len(result.token_ids)):
            raise WireError(f"{name} of step {step.step_id} needs one entry per token")
    num_top = sum(result.num_top)
    if not num_top == len(result.top_token_ids) == len(result.top_logprobs):
        raise WireError(f"step {step.step_id} does not have the alternatives that num_top counts")
    if num_top and np.max(result.top_token_ids) >= worker.info.model.vocab_size:
        raise WireError(f"step {step.step_id} returned an alternative outside the vocabulary")
    if any(sequence.is_beam for sequence in step.sequences):
        _check_alternatives(step, result)


def _check_offers(worker: WorkerState, step: OutstandingStep, result: ListResult) -> None:
    """Raise WireError unless the drafts offered are of sampled slots, and not too many."""
    if len(result.num_drafts) != len(result.slots):
        raise WireError(f"num_drafts of step {step.step_id} needs one entry per slot")
    if max(result.num_drafts) > worker.info.max_drafts:
        raise WireError(f"step {step.step_id} offers more than {worker.info.max_drafts} drafts")


def _check_predicted(step: OutstandingStep, result: ListResult) -> None:
    """Raise WireError unless the predicted drafts are of sampled slots, and were granted."""
    if len(result.num_predicted) != len(result.slots):
        raise WireError(f"num_predicted of step {step.step_id} needs one entry per slot")
    plan = step.plan
    granted = dict(zip(plan.slots, plan.num_drafts, strict=True)) if plan.num_drafts else {}
    rows = zip(result.slots, result.num_predicted, strict=True)
    if any(predicted > granted.get(slot, 0) for slot, predicted in rows):
        raise WireError(f"step {step.step_id} verified more predicted drafts than were granted")


def _check_given_up(step: OutstandingStep, result: ListResult) -> None:
    """Raise WireError for a slot given up that this step did not leave out."""
    left_out = {
        slot
        for slot, count, sequence in zip(result.slots, result.counts, step.sampled, strict=True)
        if not count and not sequence.is_pooling and sequence not in step.left_out
    }
    if unknown := sorted(set(result.given_up) - left_out):
        raise WireError(f"step {step.step_id} gave up slots {unknown}, which it did not leave out")


def _check_alternatives(step: OutstandingStep, result: ListResult) -> None:
    """Raise WireError unless every beam has as many likeliest tokens as its search may use."""
    owners = [
        one for one, count in zip(step.sampled, result.counts, strict=True) for _ in range(count)
    ]
    counts = result.num_top or [0] * len(owners)
    for sequence, count in zip(owners, counts, strict=True):
        group = sequence.request.beams if sequence.is_beam else None
        if group is not None and count < group.search.num_candidates:
            raise WireError(
                f"step {step.step_id} has {count} alternatives for a beam that needs "
                f"{group.search.num_candidates}"
            )
