"""Applies step results to sequences: tokens, ends and failures. It returns events and finished
sequences; the caller sends them."""

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from pagewire_scheduler.core.data.events import (
    BegunEvent,
    PromptLogprobsEvent,
    TimelineEvent,
    TokensEvent,
    VectorEvent,
)
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.token_logprobs import PromptPiece
from pagewire_scheduler.core.parallel.beam_group import advance_group
from pagewire_scheduler.core.planning.drafts import by_token, note_offers, note_predicted
from pagewire_scheduler.core.planning.left_out import given_up_error, leave_out, note_sampled
from pagewire_scheduler.core.planning.preemption import roll_back
from pagewire_scheduler.core.queueing.adapter_gate import push_waiting
from pagewire_scheduler.core.queueing.losses import is_suspect
from pagewire_scheduler.core.queueing.policy import QueuePolicy
from pagewire_scheduler.core.results.begin import note_begun
from pagewire_scheduler.core.results.broken_rows import (
    broken_units,
    fail_units,
    forget_names,
    have_shared,
)
from pagewire_scheduler.core.results.checks import check_result
from pagewire_scheduler.core.results.finish import end_sequence, stop_reason_of
from pagewire_scheduler.core.results.prompt_logprobs import enter_pieces, pieces_of
from pagewire_scheduler.core.results.traced_steps import note_chunks, note_stay
from pagewire_scheduler.core.state.accounts import count_more, count_search
from pagewire_scheduler.core.state.capacity import num_vector_bytes
from pagewire_scheduler.core.state.fault_isolation import unit_of
from pagewire_scheduler.core.state.frontend import timeline_event, tokens_event, vector_event
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.state.request import Request, Sequence
from pagewire_scheduler.core.state.reservations import update_reservation
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.steps.result import ListResult, StepFailure


@dataclass(slots=True)
class Applied:
    """Changes by a result, in order: events for attached frontends, and finished sequences.

    `prefilled` are prefills for other workers that are complete.
    """

    begun: list[BegunEvent] = field(default_factory=list)
    timelines: list[TimelineEvent] = field(default_factory=list)
    prompts: list[PromptLogprobsEvent] = field(default_factory=list)
    tokens: list[TokensEvent] = field(default_factory=list)
    vectors: list[VectorEvent] = field(default_factory=list)
    finished: list[Sequence] = field(default_factory=list)
    prefilled: list[Sequence] = field(default_factory=list)


def apply_result(
    worker: WorkerState, result: ListResult, policy: QueuePolicy, now: float
) -> Applied:
    """Apply the answer to the worker's oldest outstanding step.

    Raises:
        WireError: The result does not match its plan. Nothing has been applied.
    """
    step = worker.outstanding[0]
    pieces: list[tuple[Request, PromptPiece]] = []
    if result.failure is None and not step.is_void:
        check_result(worker, step, result)
        pieces = pieces_of(step, result.prompt)
    worker.outstanding.popleft()
    for sequence in step.sequences:
        sequence.num_outstanding -= 1
    applied = Applied()
    if step.is_void:
        worker.void_names.steps.update(dict.fromkeys(step.named_blocks, step.step_id))
    elif (failure := _failure_of_all(worker, step, result)) is not None:
        _apply_failure(worker, step, failure, applied, now)
    else:
        if result.failed_slots:
            broken = broken_units(step, result.failed_slots)
            forget_names(worker, step, broken)
            applied.finished += fail_units(worker, broken, result.failed_reason, now)
            pieces = [one for one in pieces if not one[0].is_finished]
        if step.num_tokens > len(step.sequences):
            seconds = result.model_time_us / 1e6
            worker.loads.prefill.note(step.num_tokens, len(step.sequences), seconds)
        for block in step.named_blocks:
            worker.pool.validate(block, step.step_id)
        for request, _ in pieces:
            note_begun(worker, request, applied.begun)
        applied.prompts.extend(enter_pieces(pieces))
        applied.prefilled.extend(one for one in step.prefilled if one.is_live)
        sampled = step.sampled
        if 0 in result.counts:
            sampled = _leave_out(worker, step, result, applied)
        note_chunks(worker.info.worker_id, step.traced, result.model_time_us / 1e6, now)
        _emit_due(worker, step, applied, now)
        sampled = _apply_sampled(worker, step, sampled, result, policy, applied, now)
        if worker.fault_isolation:
            # A search starts over after a loss: that it has got somewhere says nothing yet.
            further = (one for one in sampled if not is_suspect(one.request))
            worker.fault_isolation.clear_suspects(further)
        if worker.info.groups.has_windows:
            _release_before_windows(worker, step)
    worker.finish_step(step)
    if worker.aside.returning:
        # A prefill that this result completes was preempted with nothing left to compute.
        worker.aside.returning.difference_update(applied.prefilled)
        _requeue(worker)
    return applied


def _apply_sampled(
    worker: WorkerState,
    step: OutstandingStep,
    sampled: list[Sequence],
    result: ListResult,
    policy: QueuePolicy,
    applied: Applied,
    now: float,
) -> list[Sequence]:
    """Apply vectors and tokens; return the sequences that got tokens."""
    if step.num_pooled:
        _apply_vectors(worker, sampled, result.vectors, applied)
        sampled = [sequence for sequence in sampled if not sequence.is_pooling]
    owners = sampled
    if step.plan.num_drafts:
        owners = _take_drafts(sampled, result, policy)
    if result.logprobs or result.num_top:
        _apply_with_logprobs(worker, owners, result, applied, now)
    else:
        _apply_tokens(owners, result.token_ids, applied)
    if worker.drafts or result.num_drafts:
        note_offers(worker, step, result)
    return sampled


def _take_drafts(
    sampled: list[Sequence], result: ListResult, policy: QueuePolicy
) -> list[Sequence]:
    """Charge the right drafts of a step; return the sequence of each of its tokens."""
    counts = [count for count in result.counts if count]
    if result.num_predicted:
        rows = zip(result.counts, result.num_predicted, strict=True)
        note_predicted(sampled, counts, [predicted for count, predicted in rows if count])
    for sequence, count in zip(sampled, counts, strict=True):
        if count > 1 and sequence.is_live:
            policy.charge_output(sequence, count - 1)
    return by_token(sampled, counts)


def _leave_out(
    worker: WorkerState, step: OutstandingStep, result: ListResult, applied: Applied
) -> list[Sequence]:
    """Note whom the step sampled nothing for, end whom the worker gave up, and return the rest."""
    rest: list[Sequence] = []
    for sequence, slot, count in zip(step.sampled, result.slots, result.counts, strict=True):
        if count or sequence.is_pooling:
            rest.append(sequence)
        elif sequence not in step.left_out:
            leave_out(worker, sequence)
            if slot in result.given_up and sequence.is_live:
                error = given_up_error(result.given_up[slot])
                end_sequence(sequence, State.FINISHED_FAILED, error)
                applied.finished.append(sequence)
    return rest


def _is_left_out(step: OutstandingStep, sequence: Sequence) -> bool:
    return sequence.fairness.is_left_out or sequence in step.left_out


def _apply_tokens(sampled: list[Sequence], token_ids: Seq[int], applied: Applied) -> None:
    """Give each sequence its token; the way of nearly all steps, so it spares calls."""
    create, events = tuple.__new__, applied.tokens
    for sequence, token in zip(sampled, token_ids, strict=True):
        # After an abort or an end the token is dropped; after a preemption it is valid.
        if not sequence.is_live:
            continue
        sequence.num_in_flight -= 1
        if sequence.lateness:
            note_sampled(sequence)
        tokens = sequence.tokens
        tokens.append(token)
        request = sequence.request
        if sequence.has_logprobs:
            assert sequence.outcome.logprobs is not None
            sequence.outcome.logprobs.append(math.nan, 0, (), ())
            _emit_next(sequence, token, applied)
        elif request.handle is not None:
            event = (
                request.frontend_id,
                request.handle,
                sequence.choice,
                request.submission.epoch,
                len(tokens) - sequence.num_prompt - 1,
                (token,),
                None,
                sequence.num_cached_tokens or 0,
            )
            events.append(create(TokensEvent, event))
        num_tokens = len(tokens)
        if num_tokens > sequence.num_counted:
            count_more(sequence)
        if token in sequence.end_ids or num_tokens >= sequence.max_len:
            _end_if_due(sequence, applied)


def _apply_with_logprobs(
    worker: WorkerState,
    sampled: list[Sequence],
    result: ListResult,
    applied: Applied,
    now: float,
) -> None:
    """Append each sampled token with its log-probabilities, and set the candidates of each beam."""
    top = 0
    searches: dict[Request, None] = {}
    ids: Seq[int] = ()
    values: Seq[float] = ()
    for index, sequence in enumerate(sampled):
        if result.num_top:
            end = top + result.num_top[index]
            ids, values = result.top_token_ids[top:end], result.top_logprobs[top:end]
            top = end
        if not sequence.is_live:
            continue
        sequence.num_in_flight -= 1
        if sequence.is_beam:
            sequence.branch.candidates = list(zip(ids, values, strict=True))
            searches[sequence.request] = None
            continue
        if sequence.outcome.logprobs is not None:
            logprob = result.logprobs[index] if result.logprobs else math.nan
            rank = result.ranks[index] if result.ranks else 0
            sequence.outcome.logprobs.append(logprob, rank, ids, values)
        if sequence.lateness:
            note_sampled(sequence)
        token = result.token_ids[index]
        sequence.tokens.append(token)
        if len(sequence.tokens) > sequence.num_counted:
            count_more(sequence)
        _emit_next(sequence, token, applied)
        if token in sequence.end_ids or len(sequence.tokens) >= sequence.max_len:
            _end_if_due(sequence, applied)
    for request in searches:
        if request.beams is not None and request.beams.is_ready:
            for sequence in advance_group(worker, request):
                _emit_timeline(sequence, worker, applied, now)
                event = tokens_event(sequence, 0)
                if event is not None:
                    applied.tokens.append(event)
                applied.finished.append(sequence)
            count_search(request)


def _apply_vectors(
    worker: WorkerState, sampled: list[Sequence], vectors: bytes, applied: Applied
) -> None:
    """Give each sequence that pools its vector, which is all it wanted."""
    end = 0
    for sequence in (one for one in sampled if one.is_pooling):
        begin, end = end, end + num_vector_bytes(sequence.request.submission, worker.info.model)
        if not sequence.is_live:
            continue
        sequence.num_in_flight -= 1
        note_begun(worker, sequence.request, applied.begun)
        sequence.outcome.vector = vectors[begin:end]
        event = vector_event(sequence)
        if event is not None:
            applied.vectors.append(event)
        end_sequence(sequence, State.FINISHED_STOPPED)
        applied.finished.append(sequence)


def _emit_due(worker: WorkerState, step: OutstandingStep, applied: Applied, now: float) -> None:
    for sequence in step.due_timelines:
        if sequence.is_live and not _is_left_out(step, sequence):
            _emit_timeline(sequence, worker, applied, now)


def _emit_timeline(sequence: Sequence, worker: WorkerState, applied: Applied, now: float) -> None:
    """Say where the time went before the first token of a sequence's stay on this worker."""
    if sequence.times.is_due:
        note_begun(worker, sequence.request, applied.begun)
        sequence.times.is_due = False
        sequence.times.note_token(now)
        note_stay(worker.info.worker_id, sequence, now)
        event = timeline_event(sequence)
        if event is not None:
            applied.timelines.append(event)


def _emit_next(sequence: Sequence, token: int, applied: Applied) -> None:
    """Tell the newest token of a sequence, with its log-probabilities."""
    request = sequence.request
    if request.handle is not None:
        event = TokensEvent(
            request.frontend_id,
            request.handle,
            sequence.choice,
            request.submission.epoch,
            len(sequence.tokens) - sequence.num_prompt - 1,
            (token,),
            sequence.outcome.logprobs,
            sequence.num_cached_tokens or 0,
        )
        applied.tokens.append(event)


def _end_if_due(sequence: Sequence, applied: Applied) -> None:
    end = stop_reason_of(sequence)
    if end is not None:
        end_sequence(sequence, end)
        applied.finished.append(sequence)


def _release_before_windows(worker: WorkerState, step: OutstandingStep) -> None:
    """Give back the blocks that no later step reads: they start at or after the ends of this
    one."""
    block_size, groups = worker.info.model.block_size, worker.info.groups
    for chunk in step.chunks:
        table = chunk.sequence.table
        if _is_left_out(step, chunk.sequence):
            continue  # its last token is computed once more, and reads one position further back
        # A table of a later life of the sequence starts anew: its chunks end where it says.
        if table is not None and chunk.slot == chunk.sequence.slot:
            num_released = table.num_released.copy()
            for group in range(len(groups)):
                first = groups.first_read(group, chunk.end, block_size)
                if first > table.num_released[group]:
                    table.release_before(min(first, len(table.blocks)), group)
            if table.num_released != num_released:
                update_reservation(worker, chunk.sequence)


def _failure_of_all(
    worker: WorkerState, step: OutstandingStep, result: ListResult
) -> StepFailure | None:
    """Return how the whole step failed. It also fails if other sequences may have read blocks of
    its broken ones: the broken ones are the culprits, and all others run again."""
    if result.failure is not None or not result.failed_slots:
        return result.failure
    if not have_shared(worker, step, broken_units(step, result.failed_slots)):
        return None
    return StepFailure(result.failed_reason, tuple(result.failed_slots))


def _apply_failure(
    worker: WorkerState,
    step: OutstandingStep,
    failure: StepFailure,
    applied: Applied,
    now: float,
) -> None:
    """Roll back every sequence of the failed step and of those planned on top of it.

    Those later steps read what the failed one should have written, so their answers are void too,
    and no block named by any of them keeps its name. Sequences that share such a block are in one
    of these steps, since sharing starts with a step at or after the naming one.
    """
    steps = [step, *worker.outstanding]
    worker.void_steps(steps)
    slots = set(failure.culprit_slots)
    live = [chunk for chunk in step.chunks if not chunk.sequence.state.is_finished]
    culprits = {unit_of(chunk.sequence) for chunk in live if chunk.slot in slots}
    if live and not slots:
        alone = worker.fault_isolation.isolate(chunk.sequence for chunk in live)
        culprits = {alone} if alone is not None else set()
    message = f"the step failed: {failure.message}"
    applied.finished += fail_units(worker, culprits, message, now)
    for void in steps:
        for sequence in void.sequences:
            _roll_back(worker, sequence)
        # The worker also undoes forks and tokens of beams that the step did not compute.
        # A search that has restarted on another worker is not affected.
        for request in void.branched:
            if request.beams is not None and request.beams.live[0].placement.worker is worker:
                _roll_back(worker, request.beams.live[0])


def _roll_back(worker: WorkerState, sequence: Sequence) -> None:
    sequence.num_in_flight = 0
    if sequence.state is State.RUNNING:
        roll_back(worker, sequence)


def _requeue(worker: WorkerState) -> None:
    """Queue the preempted sequences whose last step has returned."""
    for sequence in sorted(worker.aside.returning, key=lambda sequence: sequence.key):
        if not sequence.is_live:
            worker.aside.returning.discard(sequence)
        elif not sequence.num_outstanding:
            worker.aside.returning.discard(sequence)
            push_waiting(worker, sequence)
