"""Schedules running sequences, the oldest first: as many tokens as budgets and blocks allow."""

from pagewire_scheduler.core.planning.left_out import MAX_RETRIES_PER_STEP
from pagewire_scheduler.core.planning.plan_builder import PlanBuilder
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.reservations import update_reservation


def schedule_running(builder: PlanBuilder) -> None:
    """Schedule all running sequences that have something to compute."""
    running, plan, sequences = builder.worker.running, builder.plan, builder.sequences
    slots, starts, step_id = plan.slots, plan.starts, plan.step_id
    index = num_plain = num_retries = 0
    # Victims are always behind `index`, so the list may shrink while it is walked.
    while index < len(running) and builder.num_tokens_left > num_plain:
        sequence = running[index]
        index += 1
        start = sequence.num_computed
        if start < sequence.fast_path_until:
            num_total = len(sequence.tokens) + sequence.num_in_flight
            if num_total - start == 1 and num_total < sequence.max_len:
                # What nearly every sequence does in nearly every step; `PlanBuilder.add` in short.
                slots.append(sequence.slot)  # type: ignore[arg-type]
                starts.append(start)
                sequence.num_computed = num_total
                sequence.num_in_flight += 1
                sequence.num_outstanding += 1
                sequence.last_step = step_id
                sequences.append(sequence)
                num_plain += 1
                continue
        num_tokens = sequence.num_to_compute
        # A choice forked a moment ago is in this step already.
        is_to_go_on = num_tokens > 0 and sequence.last_step != step_id
        if sequence.fairness.is_left_out and is_to_go_on:
            is_due = sequence.fairness.pauses_until <= step_id
            num_retries += is_due
            is_to_go_on = is_due and num_retries <= MAX_RETRIES_PER_STEP
        if is_to_go_on and builder.has_room_for(sequence):
            num_plain = _settle(builder, num_plain)
            schedule_one(builder, sequence, min(num_tokens, builder.num_tokens_for(sequence)))
    _settle(builder, num_plain)


def _settle(builder: PlanBuilder, num_plain: int) -> int:
    """Bring the arrays that are alike for all plain sequences up to the others; return 0."""
    if num_plain:
        builder.plan.num_new_tokens.extend([1] * num_plain)
        builder.plan.samples.extend([1] * num_plain)
        builder.plan.num_new_blocks.extend([0] * num_plain)
        builder.num_tokens_left -= num_plain
    return 0


def schedule_one(builder: PlanBuilder, sequence: Sequence, num_tokens: int) -> None:
    """Schedule up to `num_tokens` of a running sequence, as far as there are blocks."""
    worker, table = builder.worker, sequence.table
    assert table is not None
    # A token computed once more is written where it stands already, by whomever that is held.
    needs_own_tail = table.is_tail_shared and not sequence.fairness.is_left_out
    if needs_own_tail and not _own_tail(builder, sequence):
        return
    block_size = worker.info.model.block_size
    room = len(table.blocks) * block_size - sequence.num_computed
    if room >= num_tokens:
        builder.add(sequence, num_tokens, [])
        return
    needed = -((room - num_tokens) // block_size)
    needed = min(needed, _free_blocks_for(builder, sequence) // worker.pool.num_groups)
    num_tokens = min(num_tokens, room + needed * block_size)
    if num_tokens > 0:
        fresh = table.grow(needed)
        update_reservation(worker, sequence)
        builder.add(sequence, num_tokens, fresh)


def _own_tail(builder: PlanBuilder, sequence: Sequence) -> bool:
    """Ensure that the block written next has no other holder: copy on write.

    Return False when there is no block for the copy.
    """
    worker, table = builder.worker, sequence.table
    assert table is not None
    index, offset = divmod(sequence.num_computed, worker.info.model.block_size)
    if offset and table.is_shared(index):
        if not _free_blocks_for(builder, sequence):
            return False
        assert sequence.slot is not None
        # The source may be given out again at once: steps run in order, so it is read before that.
        for source, destination in table.replace(index):
            builder.plan.copy_slots.append(sequence.slot)
            builder.plan.copy_sources.append(source)
            builder.plan.copy_destinations.append(destination)
    table.is_tail_shared = False
    update_reservation(worker, sequence)
    return True


def _free_blocks_for(builder: PlanBuilder, sequence: Sequence) -> int:
    """Return how many blocks it may take, after evicting younger sequences if there was not one
    per group; 0 for fewer."""
    worker = builder.worker
    if builder.is_short and not sequence.placement.is_guaranteed:
        return 0
    while (num_free := worker.num_free_for(sequence)) < worker.pool.num_groups:
        victim = next(builder.victims(sequence), None)
        if worker.num_releasing_blocks or victim is None:
            builder.is_short = True
            return 0
        builder.preempt(victim)
    return num_free
