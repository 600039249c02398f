"""Plans the next step of one worker: running sequences first, then waiting ones, within the budgets
of tokens, slots and blocks. Prefill and decode are not distinguished: every sequence computes
tokens until it has caught up."""

from collections import Counter
from typing import Final

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.parallel.beam_group import take_moves
from pagewire_scheduler.core.planning.drafts import grant_drafts
from pagewire_scheduler.core.planning.left_out import retries, share_slots, wake
from pagewire_scheduler.core.planning.plan_builder import PlanBuilder
from pagewire_scheduler.core.planning.queue_looks import note_reasons
from pagewire_scheduler.core.planning.schedule_running import schedule_one, schedule_running
from pagewire_scheduler.core.planning.schedule_waiting import (
    preempt_for_waiting,
    schedule_waiting,
    start,
)
from pagewire_scheduler.core.queueing.policy import PreemptionPolicy, QueuePolicy
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.steps.plan import NO_SLOT, StepPlan

MAX_STARTS: Final = 32
"""Waiting sequences that are counted where tenants share the tokens of a step."""


def plan_step(
    worker: WorkerState,
    generation: int,
    policy: QueuePolicy,
    preemption: PreemptionPolicy,
    now: float,
    *,
    is_caching: bool,
) -> PlanBuilder:
    """Plan the worker's next step and enter it as outstanding, unless there is nothing to tell.

    The worker must have credit for a step.
    """
    plan: StepPlan[list[int]] = StepPlan(generation, worker.info.incarnation, worker.next_step_id)
    builder = PlanBuilder(
        worker=worker,
        plan=plan,
        policy=policy,
        preemption=preemption,
        is_caching=is_caching and not worker.info.model.is_encoder,
        num_tokens_left=worker.shared_step_tokens,
        num_bytes_left=worker.limits.new_bytes,
        now=now,
    )
    if worker.fault_isolation:
        worker.fault_isolation.forget_absent(worker)
    if worker.fault_isolation:
        wake(worker)
        _schedule_trial(builder)
    else:
        share_slots(worker, plan.step_id)
        preempt_for_waiting(builder)
        _share_tokens(builder)
        num_alone = worker.num_tokens_alone if builder.shares is None else 0
        builder.num_tokens_left += num_alone
        schedule_running(builder)
        # Who joins it shares the step.
        builder.num_tokens_left = max(0, builder.num_tokens_left - num_alone)
        if builder.is_short:
            worker.is_blocked = len(worker.waiting) > 0
        else:
            schedule_waiting(builder)
    if not plan.slots and not worker.outstanding:
        _schedule_left_out(builder)
    note_reasons(builder)
    # With nothing to run, freed slots and forgotten names are sent once no answer is under way that
    # could lead to a plan.
    if not plan.slots and (worker.outstanding or not _has_news(worker)):
        return builder
    grant_drafts(builder)
    _complete(builder)
    builder.is_sent = True
    return builder


def _schedule_left_out(builder: PlanBuilder) -> None:
    """Schedule sequences that were left out, in a step that holds no others."""
    worker = builder.worker
    for sequence in retries(worker.running):
        schedule_one(builder, sequence, 1)
    if worker.aside.resting and not builder.plan.slots:
        wake(worker)
        schedule_waiting(builder)


def _share_tokens(builder: PlanBuilder) -> None:
    """Divide the prompt tokens of the step between tenants, where they are too few for all.

    Every running sequence has the token that follows its newest one. Costs nothing while no prompt
    is under way.
    """
    worker = builder.worker
    if not worker.growing or not builder.policy.shares_steps:
        return
    num_tokens = builder.num_tokens_left - (len(worker.running) - len(worker.growing))
    wants = _wanted_tokens(builder)
    are_several = len(wants) > 1 or len(worker.num_running_of) > 1
    if are_several and wants.total() > num_tokens:
        builder.shares = builder.policy.share_tokens(num_tokens, wants)


def _wanted_tokens(builder: PlanBuilder) -> Counter[str]:
    """Return the prompt tokens that each tenant has to compute: of what runs, and of the first in
    the queue that seem to have room."""
    worker, wants = builder.worker, Counter[str]()
    for sequence in worker.growing:
        wants[sequence.request.submission.tenant] += sequence.num_to_compute
    if worker.pool.num_free - worker.reservations.num_blocks <= worker.num_kept_to_go_on:
        return wants
    for index in range(min(worker.slots.num_free, MAX_STARTS)):
        waiting = worker.waiting.at(index)
        if waiting is None or waiting is builder.claimant:
            break  # none is started behind it
        if not worker.lacks_blocks(waiting):
            wants[waiting.request.submission.tenant] += max(1, waiting.placement.num_expected)
    return wants


def _has_news(worker: WorkerState) -> bool:
    """Return whether slots were freed, or names forgotten of blocks that no load holds."""
    return bool(worker.slots.freed_to_report) or worker.void_names.are_due()


def _schedule_trial(builder: PlanBuilder) -> None:
    """Run suspects only, one step at a time, so that a failure is due to one of them."""
    worker = builder.worker
    if worker.outstanding:
        return
    # Older ones first, as always: who is planned already is never evicted.
    for sequence in sorted(worker.fault_isolation.current(), key=lambda sequence: sequence.key):
        if sequence.state is State.RUNNING and sequence.num_to_compute:
            num_tokens = min(sequence.num_to_compute, builder.num_tokens_for(sequence))
            if num_tokens > 0:
                schedule_one(builder, sequence, num_tokens)
        elif sequence.placement.queue is worker.waiting and builder.num_tokens_left > 0:
            start(builder, sequence)
    if not builder.sequences:
        # Others hold what the suspects need; let them go on, and try again when they have. Who is
        # first among them may take from a suspect that is short itself.
        builder.is_short = False
        schedule_running(builder)


def _complete(builder: PlanBuilder) -> None:
    """Add the other parts of the plan, and enter the step as outstanding."""
    worker, plan = builder.worker, builder.plan
    branched, worker.branched = list(worker.branched), {}
    for moves in map(take_moves, branched):
        for slot, source, choice in moves.forks:
            plan.fork_slots.append(slot)
            plan.fork_sources.append(source)
            plan.fork_choices.append(choice)
        for slot, token in moves.appended:
            plan.appended_slots.append(slot)
            plan.appended_token_ids.append(token)
    plan.freed_slots.extend(worker.slots.collect_freed())
    worker.next_step_id += 1
    plan.released_grammars.extend(worker.grammars.take_released())
    num_tokens = sum(plan.num_new_tokens)
    step = OutstandingStep(
        plan,
        builder.sequences,
        list(plan.named_blocks),
        branched,
        builder.prefilled,
        builder.due_timelines,
        traced=builder.traced,
        num_tokens=num_tokens,
        num_pooled=builder.num_pooled,
        num_vector_bytes=builder.num_vector_bytes,
        reports_prompt_logprobs=builder.reports_prompt_logprobs,
    )
    worker.outstanding.append(step)
    worker.counts.num_computed_tokens += num_tokens
    if plan.slots:
        worker.totals.note_step(num_tokens)
    for block, name in worker.void_names.take(worker.limits.max_void_names):
        plan.named_blocks.append(block)
        plan.names.append(name)
        plan.named_slots.append(NO_SLOT)
        if worker.loads.places_copies:
            plan.named_stripes.append(0)
    builder.policy.charge_samples(step)
