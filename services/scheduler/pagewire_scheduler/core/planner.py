"""Makes the next step of one worker: running sequences first, then waiting ones, within token, slot
and block budgets. There is no prefill and no decode: every sequence only lets its computed tokens
catch up."""

from dataclasses import dataclass, field

from pagewire_scheduler.core.block_table import BlockTable
from pagewire_scheduler.core.preemption import find_victim, preempt
from pagewire_scheduler.core.prefix_cache import find_prefix
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.step import NewSequence, StepPlan
from pagewire_scheduler.core.worker_state import Chunk, OutstandingStep, WorkerState


@dataclass(slots=True)
class Draft:
    """A plan being made and the budgets left for it."""

    worker: WorkerState
    plan: StepPlan
    is_caching: bool
    num_tokens_left: int
    # An older sequence waits for blocks on their way back: younger ones take none.
    is_short: bool = False
    chunks: list[Chunk] = field(default_factory=list)
    num_preempted: int = 0

    def add(self, sequence: Sequence, num_tokens: int, fresh_blocks: list[int]) -> None:
        """Schedule `num_tokens` of a running sequence and advance it."""
        plan, slot = self.plan, sequence.slot
        assert slot is not None
        start = sequence.num_computed
        end = start + num_tokens
        is_sampled = end == len(sequence.tokens) + sequence.num_in_flight
        plan.slots.append(slot)
        plan.starts.append(start)
        plan.num_new_tokens.append(num_tokens)
        plan.samples.append(int(is_sampled))
        plan.num_new_blocks.append(len(fresh_blocks))
        if fresh_blocks:
            plan.new_block_ids.extend(fresh_blocks)
        if self.is_caching:
            self._name(sequence, end)
        sequence.num_computed = end
        sequence.num_in_flight += is_sampled
        sequence.num_outstanding += 1
        sequence.last_step = plan.step_id
        self.num_tokens_left -= num_tokens
        self.chunks.append(Chunk(sequence, slot, is_sampled))

    def _name(self, sequence: Sequence, end: int) -> None:
        """Name the blocks before `end` whose ids are known; a sampled one's turn comes later."""
        chain, table = sequence.chain, sequence.table
        assert chain is not None
        assert table is not None
        end = min(end, len(sequence.tokens))
        if end < (table.num_named + 1) * chain.block_size:
            return
        for index in table.name_until(end, chain, sequence.tokens, self.plan.step_id):
            self.plan.named_blocks.append(table.blocks[index])
            self.plan.names.append(chain.name(index, sequence.tokens))


def plan_step(worker: WorkerState, generation: int, *, is_caching: bool) -> Draft | None:
    """Plan the worker's next step and enter it as outstanding; None when there is nothing to tell.

    The worker must have credit for a step.
    """
    plan = StepPlan(generation, worker.info.incarnation, worker.next_step_id)
    draft = Draft(worker, plan, is_caching, worker.info.max_num_batched_tokens)
    _schedule_running(draft)
    if not draft.is_short:
        _schedule_waiting(draft)
    # With nothing to run, freed slots are told once no answer is under way that could lead to a
    # plan.
    if not plan.slots and (worker.outstanding or not worker.untold_slots):
        return None
    plan.freed_slots = worker.collect_untold()
    worker.next_step_id += 1
    worker.outstanding.append(OutstandingStep(plan.step_id, draft.chunks, list(plan.named_blocks)))
    for block, name in worker.take_void_names() if worker.void_blocks else ():
        plan.named_blocks.append(block)
        plan.names.append(name)
    return draft


def _schedule_running(draft: Draft) -> None:
    running = draft.worker.running
    index = 0
    # Victims are always behind `index`, so the list may shrink while it is walked.
    while index < len(running) and draft.num_tokens_left > 0:
        sequence = running[index]
        index += 1
        num_tokens = min(sequence.num_to_compute, draft.num_tokens_left)
        if num_tokens > 0:
            _schedule_one(draft, sequence, num_tokens)


def _schedule_one(draft: Draft, sequence: Sequence, num_tokens: int) -> None:
    worker, table = draft.worker, sequence.table
    assert table is not None
    block_size = worker.info.model.block_size
    room = len(table.blocks) * block_size - sequence.num_computed
    if room >= num_tokens:
        draft.add(sequence, num_tokens, [])
        return
    needed = -((room - num_tokens) // block_size)
    if not draft.is_short:
        needed = min(needed, _free_blocks_for(draft, sequence))
    else:
        needed = 0
    num_tokens = min(num_tokens, room + needed * block_size)
    if num_tokens > 0:
        draft.add(sequence, num_tokens, table.grow(needed))


def _free_blocks_for(draft: Draft, sequence: Sequence) -> int:
    """Return how many blocks are free, after evicting younger sequences if there was none."""
    worker = draft.worker
    while worker.pool.num_free == 0:
        victim = find_victim(worker, sequence)
        if worker.num_releasing_blocks or victim is None:
            draft.is_short = True
            return 0
        preempt(worker, victim)
        draft.num_preempted += 1
    return worker.pool.num_free


def _schedule_waiting(draft: Draft) -> None:
    worker = draft.worker
    while draft.num_tokens_left > 0 and worker.free_slots:
        sequence = worker.waiting.peek()
        if sequence is None or not _admit(draft, sequence):
            return


def _admit(draft: Draft, sequence: Sequence) -> bool:
    """Start a waiting sequence if there are blocks for all its tokens; else all wait behind it.

    All blocks at once, so that two long prompts cannot each hold half of what both need; and one in
    reserve per running sequence, which will need it within a block's worth of steps.
    """
    worker, pool = draft.worker, draft.worker.pool
    block_size = worker.info.model.block_size
    chain = worker.chain_for(sequence)
    hits = find_prefix(pool.cache, chain, sequence.tokens) if draft.is_caching else []
    num_blocks = -(-len(sequence.tokens) // block_size)
    num_revived = sum(pool.ref_counts[block] == 0 for block in hits)
    if num_blocks - len(hits) + num_revived + len(worker.running) > pool.num_free:
        return False
    worker.waiting.remove(sequence)
    table = sequence.table = BlockTable(pool)
    table.share(hits)
    table.grow(num_blocks - len(hits))
    sequence.advance(State.RUNNING)
    worker.take_slot(sequence)
    worker.enter_running(sequence)
    sequence.num_computed = len(hits) * block_size
    if sequence.num_cached_tokens is None:
        sequence.num_cached_tokens = min(sequence.num_computed, sequence.num_prompt)
    draft.plan.new_sequences.append(_describe(sequence, table))
    draft.add(sequence, min(sequence.num_to_compute, draft.num_tokens_left), [])
    return True


def _describe(sequence: Sequence, table: BlockTable) -> NewSequence:
    submission = sequence.request.submission
    assert sequence.slot is not None
    return NewSequence(
        slot=sequence.slot,
        request_id=submission.request_id,
        choice=sequence.choice,
        prompt_token_ids=submission.prompt_token_ids,
        emitted_token_ids=tuple(sequence.emitted_from(0)),
        sampling=submission.sampling,
        block_ids=tuple(table.blocks),
        eos_token_ids=submission.eos_token_ids,
    )
