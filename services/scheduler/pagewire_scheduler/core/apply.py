"""Applies results to sequences: tokens, ends, failures. Tells the caller whom to queue again; emits
facts, sends nothing."""

import math
from dataclasses import dataclass, field

from pagewire_scheduler.core.preemption import preempt
from pagewire_scheduler.core.request import Sequence, TokenLogprobs
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.step import StepFailure, StepResult
from pagewire_scheduler.core.worker_state import Chunk, OutstandingStep, WorkerState
from pagewire_shared.errors import InternalError, WireError

MAX_NUM_FAILURES = 2
"""Failed steps without a known culprit after which a sequence gives up."""


@dataclass(slots=True)
class Applied:
    """What a result changed, in order.

    Attributes:
        emitted: (sequence, position in its output) per new token.
        finished: Sequences that ended.
    """

    emitted: list[tuple[Sequence, int]] = field(default_factory=list)
    finished: list[Sequence] = field(default_factory=list)


def find_end(sequence: Sequence) -> State | None:
    """Return how the newest token of `sequence` ends it, or None."""
    request, tokens = sequence.request, sequence.tokens
    position = len(tokens) - sequence.num_prompt - 1
    if position >= 0 and position >= request.submission.sampling.min_tokens:
        token = tokens[-1]
        if token in request.stop_ids:
            sequence.stop_token_id = token
            return State.FINISHED_STOPPED
        if token in request.eos_ids:
            return State.FINISHED_STOPPED
    if len(tokens) >= sequence.max_len:
        return State.FINISHED_LENGTH
    return None


def end_sequence(sequence: Sequence, state: State) -> None:
    """Finish `sequence` and release what it holds, wherever it stands."""
    worker = sequence.worker
    if sequence.state is State.RUNNING:
        assert worker is not None
        worker.leave_running(sequence)
    elif sequence.queue is not None:
        sequence.queue.remove(sequence)
    sequence.advance(state)
    sequence.worker = None
    sequence.num_in_flight = 0


def apply_result(worker: WorkerState, result: StepResult) -> Applied:
    """Apply the answer to the worker's oldest outstanding step.

    Raises:
        WireError: The result does not match its plan. Nothing has been applied.
    """
    step = worker.outstanding[0]
    if result.failure is None and not step.is_void:
        _check(worker, step, result)
    worker.outstanding.popleft()
    for chunk in step.chunks:
        chunk.sequence.num_outstanding -= 1
    applied = Applied()
    if step.is_void:
        worker.void_blocks.update(dict.fromkeys(step.named_blocks, step.step_id))
    elif result.failure is not None:
        _apply_failure(worker, step, result.failure, applied)
    else:
        for block in step.named_blocks:
            worker.pool.validate(block, step.step_id)
        _apply_tokens(step, result, applied)
    worker.finish_step(step)
    _requeue(worker, step)
    return applied


def _check(worker: WorkerState, step: OutstandingStep, result: StepResult) -> None:
    sampled = [chunk.slot for chunk in step.chunks if chunk.is_sampled]
    if result.slots != sampled:
        raise WireError(f"step {step.step_id} sampled slots {result.slots}, planned {sampled}")
    if result.counts != [1] * len(sampled) or len(result.token_ids) != len(sampled):
        raise WireError(f"step {step.step_id} must return one token per sampled slot")
    if result.token_ids and max(result.token_ids) >= worker.info.model.vocab_size:
        raise WireError(f"step {step.step_id} returned a token outside the vocabulary")
    for name in ("logprobs", "num_top"):
        if len(getattr(result, name)) not in (0, len(sampled)):
            raise WireError(f"{name} of step {step.step_id} needs one entry per token")
    num_top = sum(result.num_top)
    if not num_top == len(result.top_token_ids) == len(result.top_logprobs):
        raise WireError(f"step {step.step_id} does not have the alternatives that num_top counts")


def _apply_tokens(step: OutstandingStep, result: StepResult, applied: Applied) -> None:
    index = top = 0
    has_logprobs, has_top = bool(result.logprobs), bool(result.num_top)
    for chunk in step.chunks:
        if not chunk.is_sampled:
            continue
        sequence, token = chunk.sequence, result.token_ids[index]
        num_top = result.num_top[index] if has_top else 0
        # After an abort or an end the token is dropped; after a preemption it is valid.
        if sequence.state is State.RUNNING or not sequence.state.is_finished:
            sequence.num_in_flight -= 1
            if sequence.has_logprobs:
                logprob = result.logprobs[index] if has_logprobs else math.nan
                ids = tuple(result.top_token_ids[top : top + num_top])
                values = tuple(result.top_logprobs[top : top + num_top])
                sequence.logprobs.append(TokenLogprobs(logprob, ids, values))
            _append(sequence, token, applied)
        index += 1
        top += num_top


def _append(sequence: Sequence, token: int, applied: Applied) -> None:
    sequence.tokens.append(token)
    applied.emitted.append((sequence, sequence.num_emitted - 1))
    end = find_end(sequence)
    if end is not None:
        end_sequence(sequence, end)
        applied.finished.append(sequence)


def _apply_failure(
    worker: WorkerState, step: OutstandingStep, failure: StepFailure, applied: Applied
) -> None:
    """Roll back every sequence of the failed step and of those planned on top of it.

    Those later steps read what the failed one should have written, so their answers are void too,
    and no block named by any of them keeps its name. Sequences that share such a block are in one
    of these steps, since sharing starts with a step at or after the naming one.
    """
    steps = [step, *worker.outstanding]
    worker.void_steps(steps)
    culprits = set(failure.culprit_slots)
    for chunk in step.chunks:
        sequence = chunk.sequence
        if sequence.state.is_finished:
            continue
        sequence.num_failures += not culprits
        if chunk.slot in culprits or sequence.num_failures >= MAX_NUM_FAILURES:
            sequence.error = InternalError(f"the step failed: {failure.message}")
            end_sequence(sequence, State.FINISHED_FAILED)
            applied.finished.append(sequence)
    for void in steps:
        for chunk in void.chunks:
            _roll_back(worker, chunk)


def _roll_back(worker: WorkerState, chunk: Chunk) -> None:
    sequence = chunk.sequence
    sequence.num_in_flight = 0
    if sequence.state is State.RUNNING:
        preempt(worker, sequence)


def _requeue(worker: WorkerState, step: OutstandingStep) -> None:
    """Queue the preempted sequences whose last step this was."""
    for chunk in step.chunks:
        sequence = chunk.sequence
        if (
            sequence.state is State.PREEMPTED
            and sequence.num_outstanding == 0
            and sequence.queue is None
        ):
            worker.waiting.push(sequence)
