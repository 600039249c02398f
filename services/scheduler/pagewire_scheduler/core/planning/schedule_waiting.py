"""Schedules waiting sequences in the order of the queueing policy, where there is room for them.

A sequence that does not fit is passed by the ones behind it. It preempts younger sequences after
MAX_SKIPS were started in front of it, or at once when its priority is better. It does so only if
that makes enough room, and it always waits for blocks of older sequences. Meanwhile younger ones
may pass, because it can preempt them; older ones of other tenants may not. A sequence whose tenant
has less than its share of the slots preempts at once; the queueing policy names the victims.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.blocks.cache_changes import learn_prefix
from pagewire_scheduler.core.blocks.cache_shares import CacheOwner
from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix
from pagewire_scheduler.core.data.plan_bytes import record_bytes
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.timeline import tokens_by_tier
from pagewire_scheduler.core.parallel.beam_group import start_group
from pagewire_scheduler.core.planning.drafts import for_drafts
from pagewire_scheduler.core.planning.known_prefix import KnownPrefix, find_known_prefix
from pagewire_scheduler.core.planning.plan_builder import PlanBuilder
from pagewire_scheduler.core.state.capacity import (
    MAX_PREEMPTIONS,
    num_blocks_ever,
    num_blocks_to_start,
)
from pagewire_scheduler.core.state.lack import Lack
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.reservations import guarantee, is_to_be_private
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.steps.plan import GroupTable, NewSequence

MAX_SKIPS: Final = 16
# How many that do not fit are looked past in one plan.
MAX_BLOCKED: Final = 8


@dataclass(frozen=True, slots=True)
class _Place:
    """The cached blocks with which a sequence would start, and the blocks per group it needs."""

    hits: CachedPrefix
    num_blocks: int


def preempt_for_waiting(builder: PlanBuilder) -> None:
    """Preempt running sequences for the first waiting ones that may.

    This comes first, because planned sequences are not preempted.
    """
    for index in range(MAX_BLOCKED):
        sequence = builder.worker.waiting.at(index)
        if sequence is None:
            return
        # Also behind one that does not press: that of another tenant may stand in front.
        displaceable = list(
            builder.policy.displaceable(builder.worker, sequence, _num_slots(sequence))
        )
        is_pressing = _is_pressing(builder, sequence)
        if not (is_pressing or displaceable) or _place_for(builder, sequence) is not None:
            continue
        younger = builder.victims(sequence) if is_pressing else iter(())
        if _preempt_for_blocks(builder, sequence, displaceable, younger):
            builder.claimant = sequence
            return


def schedule_waiting(builder: PlanBuilder) -> None:
    """Start as many waiting sequences as fit."""
    worker = builder.worker
    blocked: list[Sequence] = []
    while builder.num_tokens_left > 0 and len(blocked) < MAX_BLOCKED:
        if blocked and not worker.slots.num_free:
            break
        sequence = worker.waiting.at(len(blocked))
        if sequence is None:
            break
        if not _is_barred(sequence, blocked) and start(builder, sequence):
            for passed in blocked:
                passed.fairness.num_skipped += builder.has_share(passed)
        elif builder.is_full:
            break  # it is first in the next plan, and fits there
        elif sequence is builder.claimant:
            break  # its room is on its way back, and for it alone
        else:
            blocked.append(sequence)
    is_short = builder.num_tokens_left > 0 and not builder.is_full and builder.shares is None
    worker.is_blocked = is_short and len(worker.waiting) > 0


def _is_barred(sequence: Sequence, blocked: list[Sequence]) -> bool:
    """Whether one in front that has been passed often enough could never get back what `sequence`
    takes: an older one, which it may not evict."""
    passed_often = [one for one in blocked if one.fairness.num_skipped >= MAX_SKIPS]
    return any(sequence.key < passed.key for passed in passed_often)


def start(builder: PlanBuilder, sequence: Sequence) -> bool:
    """Start a waiting sequence if there are slots, blocks and bytes for it; return whether it
    was."""
    place = _place_for(builder, sequence) if builder.has_room_for(sequence) else None
    if place is None:
        return False
    worker, num_hits = builder.worker, len(place.hits)
    block_size = worker.info.model.block_size
    is_found = sequence.is_prefill and num_hits * block_size == sequence.num_prompt
    prefix = find_known_prefix(builder, sequence, place.hits)
    num_sent = sequence.num_to_hold - prefix.num_tokens
    num_ids = place.num_blocks * worker.pool.num_groups
    num_bytes = record_bytes(sequence.request.submission, num_sent, num_ids)
    if not is_found and not builder.take_bytes(num_bytes):
        builder.is_full = True
        return False
    worker.waiting.remove(sequence)
    sequence.fairness.num_skipped = 0
    if is_found:
        builder.found.append(sequence)  # others have computed it meanwhile
        return True
    table = sequence.table = BlockTable(worker.pool, _owner_of(worker, sequence))
    table.share(place.hits)
    if worker.pool.changes is not None and worker.pool.changes.num_unknown:
        chain, num_groups = worker.chain_for(sequence), worker.pool.num_groups
        learn_prefix(worker.pool.changes, chain, sequence.tokens, num_hits, num_groups)
    table.grow(place.num_blocks - num_hits)
    if sequence.fairness.num_preemptions >= MAX_PREEMPTIONS:
        guarantee(worker, sequence)
    _enter(builder, sequence, num_hits * block_size, prefix)
    return True


def _owner_of(worker: WorkerState, sequence: Sequence) -> CacheOwner | None:
    """Return who pays for the cached blocks of a sequence; None without a bound."""
    submission, size = sequence.request.submission, worker.info.bytes_per_block
    if submission.cache_bytes is None or not size:
        return None
    return CacheOwner(submission.tenant, submission.cache_bytes // size)


def _place_for(builder: PlanBuilder, sequence: Sequence) -> _Place | None:
    """Return where a waiting sequence can start now, or None.

    Blocks for all its tokens at once, so that two long prompts cannot each hold half of what both
    need; and one per group in reserve for each running sequence, which will need it within a
    block's worth of steps.
    """
    worker, pool = builder.worker, builder.worker.pool
    if worker.slots.num_free < _num_slots(sequence):
        return None
    if worker.lacks_blocks(sequence):
        return None
    block_size, groups = worker.info.model.block_size, worker.info.groups
    chain = worker.chain_for(sequence)
    is_guaranteed = sequence.fairness.num_preemptions >= MAX_PREEMPTIONS
    is_private = is_guaranteed and is_to_be_private(worker)
    is_looking = builder.is_caching and not is_private and sequence.request.reads_cache
    hits = (
        worker.cached_prefix(sequence) if is_looking else CachedPrefix([[] for _ in groups.windows])
    )
    has_windows, ref_counts = groups.has_windows, pool.ref_counts
    num_revived = sum(ref_counts[block] == 0 for block in hits.held)
    if not groups.has_full:
        num_revived = _shorten(worker, sequence, hits, num_revived)
    num_hits, num_held = len(hits), len(hits.held)
    num_free = worker.num_free_for(sequence) - num_revived - worker.num_kept_to_go_on
    num_blocks = -(-sequence.num_to_hold // block_size)
    if has_windows:
        num_blocks = _num_blocks_in_window(builder, num_blocks, num_hits, num_free)
    needed = num_held + (num_blocks - num_hits) * pool.num_groups
    if is_guaranteed:
        needed = max(needed, num_blocks_ever(worker, sequence))
    elif has_windows and groups.has_full:
        needed = max(needed, num_blocks_to_start(worker, sequence))
    num_missing = needed - num_held - num_free
    sequence.fairness.lack = None
    if num_missing <= 0:
        return _Place(hits, num_blocks)
    if not has_windows:  # else it depends on the budget of the step, too
        is_more = is_looking and num_hits < (len(sequence.tokens) - 1) // block_size
        next_name = chain.name(num_hits, sequence.tokens) if is_more else None
        sequence.fairness.lack = Lack(
            pool=pool,
            num_missing=num_missing,
            num_released=pool.num_released,
            num_aside=worker.num_aside(sequence),
            next_name=next_name,
        )
    return None


def _shorten(worker: WorkerState, sequence: Sequence, hits: CachedPrefix, num_revived: int) -> int:
    """Drop the last of the `hits` where all blocks fall out of windows.

    A prefix longer than the pool is held for a moment only, but must leave room to go on. Return
    how many of the rest are held by no sequence; before it were `num_revived`.
    """
    ref_counts, num_groups = worker.pool.ref_counts, worker.pool.num_groups
    spare = worker.num_free_for(sequence) - worker.num_kept_to_go_on - num_groups
    while len(hits) and num_revived > max(0, spare):
        num_revived -= sum(ref_counts[blocks.pop()] == 0 for blocks in hits.groups)
    return num_revived


def _enter(builder: PlanBuilder, sequence: Sequence, num_cached: int, prefix: KnownPrefix) -> None:
    """Let a sequence that has its blocks run, and schedule its first tokens."""
    worker, table = builder.worker, sequence.table
    assert table is not None
    sequence.advance(State.RUNNING)
    worker.enter_running(sequence)
    if sequence.request.submission.adapter:
        worker.aside.adapting.note_started(sequence.request.submission.adapter)
    sequence.num_computed = num_cached
    sequence.times.note_begun(builder.now)
    sequence.times.is_due = True
    if sequence.num_cached_tokens is None:
        first, end = sequence.remote.handed_off
        num_computed = max(0, min(end, num_cached, sequence.num_prompt) - first)
        cached = min(num_cached, sequence.num_prompt) - num_computed
        sequence.num_cached_tokens, block_size = cached, worker.info.model.block_size
        sequence.times.cached_tokens = tokens_by_tier(cached, sequence.remote.loaded, block_size)
        if builder.is_caching and sequence.is_asked_for and sequence.request.reads_cache:
            tiers = sequence.times.cached_tokens
            worker.totals.note_prefix(sequence.num_prompt, tiers, num_computed)
    if sequence.is_beam:
        start_group(sequence)
        worker.slots.reserve(sequence, _num_slots(sequence) - 1)
    worker.counts.num_queried_tokens += len(sequence.tokens) - 1
    worker.counts.num_hit_tokens += num_cached
    builder.policy.charge_admission(sequence, sequence.num_to_hold - num_cached)
    sequence.reports_prompt_logprobs = sequence.request.needs_prompt_logprobs
    describe = _describe_prefill if sequence.is_prefill else _describe
    builder.plan.new_sequences.append(describe(worker, sequence, table, prefix))
    room = len(table.blocks) * worker.info.model.block_size - num_cached
    num_tokens = min(sequence.num_to_compute, builder.num_tokens_for(sequence), room)
    builder.add(sequence, num_tokens, [])


def _num_slots(sequence: Sequence) -> int:
    """Return how many slots it needs: all beams of a search run or none."""
    return len(sequence.request.sequences) if sequence.is_beam else 1


def _num_blocks_in_window(
    builder: PlanBuilder, num_blocks: int, num_hits: int, num_free: int
) -> int:
    """Return the blocks per group to start with where old ones fall out of an attention window.

    Those of the first step are enough, or as many as there are, but at least one that is new.
    """
    block_size, num_groups = builder.worker.info.model.block_size, builder.worker.pool.num_groups
    first_step = num_hits + -(-builder.num_tokens_left // block_size)
    return min(num_blocks, first_step, max(num_hits + 1, num_hits + num_free // num_groups))


def _is_pressing(builder: PlanBuilder, sequence: Sequence) -> bool:
    """Whether it has been passed often enough, or is preferred to the youngest that runs."""
    if sequence.fairness.num_skipped >= MAX_SKIPS:
        return True
    youngest = next(builder.victims(sequence), None)
    return youngest is not None and builder.policy.is_preferred(sequence, youngest)


def _preempt_for_blocks(
    builder: PlanBuilder,
    sequence: Sequence,
    displaceable: list[Sequence],
    younger: Iterator[Sequence],
) -> bool:
    """Evict sequences of other tenants, then younger ones, if that makes room for `sequence`;
    return whether room is made.

    It may be on its way back with steps under way.
    """
    worker = builder.worker
    needed = num_blocks_to_start(worker, sequence) + worker.num_kept_to_go_on
    leaving = worker.leaving_blocks()
    is_waiting_for_steps = leaving.num_free > 0
    num_free = worker.num_free_for(sequence)
    num_slots = worker.slots.num_free + worker.num_releasing_slots
    evicted: list[Sequence] = []
    others = (one for one in younger if one not in displaceable)
    for victim in itertools.chain(displaceable, others):
        if num_free + leaving.num_free >= needed and num_slots >= _num_slots(sequence):
            break
        evicted.append(victim)
        assert victim.table is not None
        leaving.add(victim.table)
        num_slots += 1
        needed -= worker.pool.num_groups
    if num_free + leaving.num_free < needed or num_slots < _num_slots(sequence):
        return False
    if not is_waiting_for_steps:
        for victim in evicted:
            if victim.state is State.RUNNING:  # else it left with the search of another victim
                displace = builder.displace if victim in displaceable else builder.preempt
                displace(victim)
    return True


def _describe(
    worker: WorkerState, sequence: Sequence, table: BlockTable, prefix: KnownPrefix
) -> NewSequence:
    request, submission = sequence.request, sequence.request.submission
    group, key = request.beams, request.grammar_key
    sampling = submission.sampling
    if sampling.prompt_logprobs is not None and not sequence.reports_prompt_logprobs:
        sampling = sampling.with_(prompt_logprobs=None)
    assert sequence.slot is not None
    return NewSequence(
        slot=sequence.slot,
        request_id=submission.request_id,
        choice=sequence.choice,
        prompt_token_ids=submission.prompt_token_ids[prefix.num_tokens :],
        emitted_token_ids=tuple(sequence.emitted_from(0)),
        sampling=sampling,
        block_ids=tuple(table.blocks),
        further_tables=_further_tables(table),
        eos_token_ids=() if sampling.ignore_eos else submission.eos_token_ids,
        num_candidates=group.search.num_candidates if group is not None else None,
        grammar_id=worker.grammars.id_of(key) if key is not None else None,
        pooling=submission.pooling,
        tenant=submission.tenant,
        prefix_slot=prefix.slot,
        num_prefix_tokens=prefix.num_tokens,
        adapter_slot=worker.adapters.slot_of(submission.adapter),
        **for_drafts(worker, submission),
    )


def _describe_prefill(
    worker: WorkerState, sequence: Sequence, table: BlockTable, prefix: KnownPrefix
) -> NewSequence:
    """Only its tokens count: nothing is sampled."""
    submission = sequence.request.submission
    assert sequence.slot is not None
    return NewSequence(
        slot=sequence.slot,
        request_id=submission.request_id,
        choice=sequence.choice,
        prompt_token_ids=tuple(sequence.tokens[prefix.num_tokens : sequence.num_prompt]),
        emitted_token_ids=(),
        sampling=submission.sampling.with_(
            structured_outputs=None, prompt_logprobs=None, logprobs=None
        ),
        block_ids=tuple(table.blocks),
        further_tables=_further_tables(table),
        eos_token_ids=(),
        tenant=submission.tenant,
        prefix_slot=prefix.slot,
        num_prefix_tokens=prefix.num_tokens,
        adapter_slot=worker.adapters.slot_of(submission.adapter),
    )


def _further_tables(table: BlockTable) -> tuple[GroupTable, ...]:
    """Return the tables of the cache groups behind the first one."""
    rows = zip(table.groups[1:], table.num_released[1:], strict=True)
    return tuple(GroupTable(tuple(blocks[num_before:]), num_before) for blocks, num_before in rows)
