"""Turns a plan and the slots into the tensors of one flat batch. Runs no model.

A few array operations do all the work; no loop goes over sequences or tokens.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.backend.adapters import NO_ADAPTER, AdapterRows
from pagewire_worker.backend.attention import AttentionMetadata, Int64Array
from pagewire_worker.backend.backend import GroupBatch, StepBatch
from pagewire_worker.backend.device_copy import rows_to_device, to_device
from pagewire_worker.batch.draft_rows import (
    DraftRows,
    DraftSource,
    VerifiedRows,
    check_grants,
    draft_rows,
    no_drafts,
    place_drafts,
)
from pagewire_worker.batch.pooling import PoolingRows, pooling_rows
from pagewire_worker.batch.prompt_logprobs import PromptRows, prompt_rows
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.sampling.sampling_table import SamplingRows
from pagewire_worker.sampling.token_history import TokenHistory


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedStep:
    """A step that is ready to run.

    Attributes:
        batch: Input of the model. Its outputs are the states to sample from, then the states that
            predict prompt tokens, then the states to pool.
        slots: Scheduled slots, [num_seqs].
        ends: Tokens computed per slot after the step, without drafts, [num_seqs].
        sampling_slots: The slot of each row that samples, [samples]; once per draft and once more.
        output_positions: Index of their next tokens in their outputs, [samples].
        sampled_positions: Positions of these tokens in their sequences, [samples].
        prompt: Prompt tokens to report; None for none.
        answering_slots, num_sampled: Slots that sample or return a vector, in the order of the
            plan, and how many tokens each samples.
        begun_blocks: Blocks whose first position the step writes.
        token_slots: Slot of each token that is computed, [tokens].
        sampled_there: `sampling_slots` and `sampled_positions` on the device.
        token_positions: Position of each token in its sequence, [tokens].
        drafts: The rows that verify drafts; None without any.
    """

    batch: StepBatch
    slots: Int64Array
    ends: Int64Array
    sampling_slots: Int64Array
    output_positions: Int64Array
    sampled_positions: Int64Array
    sampling: SamplingRows
    prompt: PromptRows | None
    pooling: PoolingRows
    answering_slots: Int64Array
    num_sampled: Int64Array
    begun_blocks: Int64Array
    token_slots: Int64Array
    sampled_there: tuple[Tensor, Tensor]
    token_positions: Int64Array
    drafts: DraftRows | None = None

    def num_accepted(self, verified: VerifiedRows) -> Int64Array:
        """Return how many drafts of each scheduled slot were right, [num_seqs]."""
        accepted = np.zeros_like(self.ends)
        accepted[np.isin(self.slots, self.sampling_slots)] = verified.counts - 1
        return accepted

    def accepted_ends(self, verified: VerifiedRows) -> Int64Array:
        """Return per token where the certain tokens and right drafts of its slot end, [tokens]."""
        ends = np.zeros(int(self.slots.max()) + 1, dtype=np.int64)
        ends[self.slots] = self.ends + self.num_accepted(verified)
        return ends[self.token_slots]

    def adapters_of(self, first: int, end: int) -> AdapterRows | None:
        """Return the adapters of some outputs of the model; None if no token has one."""
        own = self.batch.output_adapters
        return None if own is None else own.part(first, end)

    @property
    def needs_states(self) -> bool:
        """Whether states are read for more than sampling."""
        return self.prompt is not None or len(self.pooling.rows) > 0


def prepare_step(
    table: SlotTable,
    plan: StepPlan,
    max_num_batched_tokens: int,
    draft_source: DraftSource = no_drafts,
) -> PreparedStep:
    """Return the batch of a plan that is already applied to `table`.

    Drafts of `draft_source` are written behind the tokens of the slots.

    Raises:
        PlanError: The plan asks for tokens or blocks that its slots do not have.
    """
    slots = np.asarray(plan.slots, dtype=np.int64)
    starts = np.asarray(plan.starts, dtype=np.int64)
    num_new = np.asarray(plan.num_new_tokens, dtype=np.int64)
    is_answering = np.asarray(plan.samples, dtype=bool)
    ends = starts + num_new
    num_tokens = int(num_new.sum()) + int(np.sum(plan.num_drafts))
    if num_tokens > max_num_batched_tokens:
        raise PlanError(f"{num_tokens} tokens are more than {max_num_batched_tokens}")
    last_rows = logits_rows(plan, ends)
    _check_rows(table, slots, starts, ends, is_answering)
    granted = check_grants(table, plan, ends)
    is_sampling = is_answering & ~table.pooling.is_pooling(slots)
    drafts, reach = None, ends
    if granted is not None:
        num_drafts = place_drafts(table, slots, ends, granted, draft_source)
        if num_drafts.any():
            drafts = draft_rows(table, slots, ends, num_drafts, is_sampling)
            reach = ends + num_drafts
    return _prepared(table, slots, (starts, ends, reach), last_rows, (is_answering, drafts))


def _prepared(
    table: SlotTable,
    slots: Int64Array,
    spans: tuple[Int64Array, Int64Array, Int64Array],
    last_rows: Int64Array,
    answers: tuple[npt.NDArray[np.bool_], DraftRows | None],
) -> PreparedStep:
    """Return the step that computes from the starts to the reach of `slots`.

    Args:
        spans: First position, end of the certain tokens and end of the drafts, [slots] each.
        last_rows: Index of the slot whose logits each slot uses, [slots].
        answers: Whether each slot samples or returns a vector, and the drafts.
    """
    (starts, ends, reach), (is_answering, drafts) = spans, answers
    num_rows = reach - starts
    query_starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(num_rows)))
    first_rows = query_starts[:-1]
    is_sampling = is_answering & ~table.pooling.is_pooling(slots)
    prompt = prompt_rows(table, slots, starts, ends, first_rows)
    pooling = pooling_rows(table, slots, starts, ends, first_rows, is_answering)
    sampling_slots, sampled_positions = slots[is_sampling], ends[is_sampling]
    rows = first_rows[last_rows[is_sampling]] + (ends - starts)[last_rows[is_sampling]] - 1
    if drafts is not None:
        sampling_slots = drafts.owners(is_sampling, slots)
        sampled_positions, rows = drafts.spread(is_sampling, sampled_positions, rows)
    output_rows = [rows, pooling.rows]
    if prompt is not None:
        output_rows.insert(1, prompt.rows)
    batch, begun_blocks, token_positions, sampled_there = _batch(
        table,
        slots,
        starts,
        reach,
        query_starts,
        output_rows,
        sampled=(sampling_slots, sampled_positions),
    )
    output_positions = sampled_positions - table.prompt_lens[sampling_slots]
    return PreparedStep(
        batch=batch,
        slots=slots,
        ends=ends,
        sampling_slots=sampling_slots,
        output_positions=output_positions,
        sampled_positions=sampled_positions,
        sampling=_sampling_rows(table, sampling_slots, output_positions),
        prompt=prompt,
        pooling=pooling,
        answering_slots=slots[is_answering],
        num_sampled=is_sampling[is_answering].astype(np.int64),
        begun_blocks=begun_blocks,
        token_slots=slots.repeat(num_rows),
        sampled_there=sampled_there,
        token_positions=token_positions,
        drafts=drafts,
    )


def _batch(
    table: SlotTable,
    slots: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    query_starts: Int64Array,
    output_rows: list[Int64Array],
    *,
    sampled: tuple[Int64Array, Int64Array],
) -> tuple[StepBatch, Int64Array, Int64Array, tuple[Tensor, Tensor]]:
    """Return the flat batch, the blocks whose first position it writes, the position of each token,
    and `sampled` there."""
    sequence = np.repeat(np.arange(len(slots)), ends - starts)
    positions = np.arange(len(sequence)) - query_starts[sequence] + starts[sequence]
    token_slots = slots[sequence]
    block_size = table.limits.block_size
    indexes, offsets = positions // block_size, positions % block_size
    blocks = [own[token_slots, indexes] for own in table.group_tables]
    device = table.tokens.device
    mappings = [own * block_size + offsets for own in blocks]
    computing = slots[ends > starts]
    wanted = np.concatenate(output_rows)
    used = _used_adapters(table, computing)
    adapters = [table.adapters[token_slots]] if len(used) else []
    slots_there, positions_there, faults, index, wanted_there, *others = rows_to_device(
        (
            *(token_slots, positions, np.zeros_like(positions), computing, wanted),
            *(*sampled, *adapters, *mappings),
        ),
        device,
    )
    sampled_there, mappings_there = (others[0], others[1]), others[2 + len(adapters) :]
    attentions = _attention_metadata(table, slots, query_starts, ends, index)
    types = table.pooling.token_types(token_slots, positions)
    batch = StepBatch(
        token_ids=table.tokens[slots_there, positions_there].long(),
        positions=positions_there,
        slot_mapping=mappings_there[0],
        output_rows=wanted_there,
        attention=attentions[0],
        is_decode=all(np.array_equal(rows, np.arange(len(slots))) for rows in (sequence, wanted)),
        faults=faults,
        token_types=to_device(types, device) if types is not None else None,
        further_groups=tuple(map(GroupBatch, mappings_there[1:], attentions[1:])),
        adapters=AdapterRows(others[2], used) if adapters else None,
    )
    is_first = offsets == 0
    begun = [own[is_first] for own in blocks]
    begun_blocks = begun[0] if len(begun) == 1 else np.concatenate(begun)
    return batch, begun_blocks, positions, sampled_there


def _used_adapters(table: SlotTable, slots: Int64Array) -> tuple[int, ...]:
    """Return the adapter slots of `slots`, ascending."""
    if not table.limits.num_adapters:
        return ()
    return tuple(sorted({*table.adapters[slots].tolist()} - {NO_ADAPTER}))


def _sampling_rows(table: SlotTable, slots: Int64Array, positions: Int64Array) -> SamplingRows:
    """Return the sampler's parameters for the tokens at output `positions` of `slots`."""
    prompt_lens = table.prompt_lens[slots]
    history = TokenHistory(table.tokens, slots, prompt_lens, prompt_lens + positions)
    return table.sampling.rows(slots, positions, history)


def _attention_metadata(
    table: SlotTable,
    slots: Int64Array,
    query_starts: Int64Array,
    ends: Int64Array,
    index: Tensor,
) -> list[AttentionMetadata]:
    """Return the places of the sequences that compute tokens, by cache group.

    Other sequences do not attend. `index` holds the slots of those that do, on the device.
    """
    is_computing = np.diff(query_starts) > 0
    if not is_computing.all():
        slots, ends = slots[is_computing], ends[is_computing]
        query_starts = np.append(query_starts[:-1][is_computing], query_starts[-1])
    num_blocks = -(-int(ends.max()) // table.limits.block_size)
    resident = table.resident
    if resident is not None:
        resident.update(table.num_blocks)
    return [
        AttentionMetadata(
            query_starts,
            ends,
            blocks[slots, :num_blocks],
            None if resident is None else resident.rows(group, slots, index),
        )
        for group, blocks in enumerate(table.group_tables)
    ]


def _check_rows(
    table: SlotTable,
    slots: Int64Array,
    starts: Int64Array,
    ends: Int64Array,
    is_answering: npt.NDArray[np.bool_],
) -> None:
    """Raise PlanError naming the slots that break a rule.

    Slots that compute nothing are forks, checked before; their sources compute for them.
    """
    num_tokens = table.num_tokens[slots]
    # A slot of a request that the worker does not hold has no tokens and fails the first rule.
    rules = (
        (ends > num_tokens, "tokens that are not known"),
        (
            (starts > table.num_computed[slots]) & (ends > starts),
            "a start behind what is computed",
        ),
        (ends > table.num_blocks[slots] * table.limits.block_size, "too few blocks"),
        (is_answering & (ends != num_tokens), "a sample before the last token"),
        (ends > table.limits.max_model_len, "a position behind the context"),
    )
    for is_broken, text in rules:
        if is_broken.any():
            culprits = tuple(slots[is_broken].tolist())
            raise PlanError(f"slots {list(culprits)}: {text}", culprits)
    if len(set(slots.tolist())) != len(slots):
        raise PlanError("a slot is scheduled twice in one step")


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
