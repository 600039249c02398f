"""Applies the changes of a plan to the slots, all or nothing. Changes no KV and runs no model.

The order is that of worker_attach.proto: freed slots, new sequences, forks, appended tokens, new
blocks, block copies.
"""

from dataclasses import dataclass

import numpy as np

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.columns import Ints
from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.batch.slots import SavedSlots, SlotTable
from pagewire_worker.plan.plan_error import PlanError


@dataclass(frozen=True, slots=True, kw_only=True)
class Undo:
    """The state to restore when a plan is taken back.

    Attributes:
        grown_slots, previous_num_blocks: Scheduled slots and their former numbers of blocks,
            [slots] each.
        changed_slots, saved: State that forks, appended tokens and copies overwrote; else None.
    """

    new_slots: tuple[int, ...]
    grown_slots: Int64Array
    previous_num_blocks: Int64Array
    changed_slots: Int64Array
    saved: SavedSlots | None


NO_SLOTS: Int64Array = np.zeros(0, dtype=np.int64)


def apply_plan(table: SlotTable, plan: StepPlan) -> Undo:
    """Apply freed slots and all changes of the sequences, in the order of the wire.

    Grammars are applied by the model runner.

    Raises:
        PlanError: The plan contradicts the slots; then only the freed slots have changed.
    """
    for slot in np.asarray(plan.freed_slots, dtype=np.int64).tolist():
        # A slot whose first step failed was never filled: freeing it is valid.
        table.free(table.checked_slot(slot))
    changed = _changed_slots(table, plan)
    saved = table.save(changed) if len(changed) else None
    new_slots: list[int] = []
    grown, previous = NO_SLOTS, NO_SLOTS
    try:
        _install_new(table, plan, new_slots)
        _fork(table, plan, new_slots)
        _append_tokens(table, plan)
        slots = _existing(table, plan.slots)
        grown, previous = slots, table.num_blocks[slots]
        _append_blocks(table, plan, slots)
        _replace_copied(table, plan)
    except PlanError:
        undo_plan(
            table,
            Undo(
                new_slots=tuple(new_slots),
                grown_slots=grown,
                previous_num_blocks=previous,
                changed_slots=changed,
                saved=saved,
            ),
        )
        raise
    return Undo(
        new_slots=tuple(new_slots),
        grown_slots=grown,
        previous_num_blocks=previous,
        changed_slots=changed,
        saved=saved,
    )


def undo_plan(table: SlotTable, undo: Undo) -> None:
    """Take back the changes of `apply_plan`, except freed slots."""
    table.num_blocks[undo.grown_slots] = undo.previous_num_blocks
    if undo.saved is not None:
        table.restore(undo.changed_slots, undo.saved)
    for slot in undo.new_slots:
        table.free(slot)


def _existing(table: SlotTable, values: Ints | Int64Array) -> Int64Array:
    slots = np.asarray(values, dtype=np.int64)
    if len(slots):
        table.checked_slot(int(slots.max()))
    return slots


def _same_length(**arrays: Ints) -> list[Int64Array]:
    columns = [np.asarray(values, dtype=np.int64) for values in arrays.values()]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{len(values)} {name}" for name, values in arrays.items())
        raise PlanError(f"arrays of one struct differ in length: {lengths}")
    return columns


def _changed_slots(table: SlotTable, plan: StepPlan) -> Int64Array:
    """Return the slots that change by more than new blocks; PlanError for unknown slots."""
    parts = (plan.fork_slots, plan.appended_slots, plan.copy_slots)
    if not any(map(len, parts)):
        return NO_SLOTS
    return np.unique(np.concatenate([_existing(table, part) for part in parts]))


def _install_new(table: SlotTable, plan: StepPlan, new_slots: list[int]) -> None:
    if not plan.new_sequences:
        return
    slots, starts = _same_length(slots=plan.slots, starts=plan.starts)
    start_of = dict(zip(slots.tolist(), starts.tolist(), strict=True))
    for request in plan.new_sequences:
        if request.slot not in start_of:
            raise PlanError(f"slot {request.slot} is new and not scheduled", (request.slot,))
        table.install(request, start_of[request.slot])
        new_slots.append(request.slot)


def _fork(table: SlotTable, plan: StepPlan, new_slots: list[int]) -> None:
    """Make slots copies of others; all sources are read before any slot is written."""
    destinations, sources, choices = _same_length(
        fork_slots=plan.fork_slots, fork_sources=plan.fork_sources, fork_choices=plan.fork_choices
    )
    if len(destinations) == 0:
        return
    _existing(table, sources)
    _require_distinct(destinations, "fork_slots")
    for slot, source in zip(destinations.tolist(), sources.tolist(), strict=True):
        request_id, source_id = table.request_ids[slot], table.request_ids[source]
        if source_id is None:
            raise PlanError(f"slot {slot}: its fork source {source} is empty", (slot,))
        if table.pooling.params(source) is not None:
            raise PlanError(f"slot {slot}: its fork source {source} pools", (slot,))
        if slot in new_slots or request_id not in (None, source_id):
            raise PlanError(f"slot {slot} is taken by another sequence than its fork", (slot,))
    table.restore(destinations, table.save(sources))
    table.sampling.set_choices(destinations, choices)


def _append_tokens(table: SlotTable, plan: StepPlan) -> None:
    slots, token_ids = _same_length(
        appended_slots=plan.appended_slots, appended_token_ids=plan.appended_token_ids
    )
    if len(slots) == 0:
        return
    _require_distinct(slots, "appended_slots")
    rules = (
        (~table.is_beam[slots], "a token appended to what is no beam"),
        (token_ids >= table.limits.vocab_size, "an appended token id that is no id"),
        (table.num_tokens[slots] >= table.limits.max_model_len, "a token behind the context"),
    )
    for is_broken, text in rules:
        if is_broken.any():
            culprits = tuple(slots[is_broken].tolist())
            raise PlanError(f"slots {list(culprits)}: {text}", culprits)
    ids = to_device(token_ids, table.tokens.device)
    table.write_tokens(slots, table.num_tokens[slots], ids)
    table.num_tokens[slots] += 1


def _append_blocks(table: SlotTable, plan: StepPlan, slots: Int64Array) -> None:
    counts = np.asarray(plan.num_new_blocks, dtype=np.int64)
    blocks = np.asarray(plan.new_block_ids, dtype=np.int64)
    num_groups = len(table.block_tables)
    if int(counts.sum()) * num_groups != len(blocks):
        of_groups = f" in {num_groups} cache groups" if num_groups > 1 else ""
        text = f"{len(blocks)} new blocks for counts that sum to {counts.sum()}{of_groups}"
        raise PlanError(text)
    ends = np.cumsum(counts) * num_groups
    for index in np.flatnonzero(counts).tolist():
        end, count = int(ends[index]), int(counts[index])
        own = blocks[end - count * num_groups : end].reshape(num_groups, count)
        table.extend(int(slots[index]), own)


def _replace_copied(table: SlotTable, plan: StepPlan) -> None:
    """Replace the source of every copy by its destination in the block table of its slot."""
    slots, sources, destinations = _same_length(
        copy_slots=plan.copy_slots,
        copy_sources=plan.copy_sources,
        copy_destinations=plan.copy_destinations,
    )
    if len(slots) == 0:
        return
    largest = max(int(sources.max()), int(destinations.max()))
    if largest >= table.limits.num_blocks:
        raise PlanError(f"block {largest} of a copy does not exist")
    _require_distinct(destinations, "copy_destinations")
    copies = zip(slots.tolist(), sources.tolist(), destinations.tolist(), strict=True)
    for slot, source, destination in copies:
        rows = table.block_tables[:, slot, : table.num_blocks[slot]]
        groups, places = np.nonzero(rows == source)
        if len(places) == 0:
            raise PlanError(f"slot {slot} does not hold block {source} of a copy", (slot,))
        # An earlier place lies before the window of its group: the block was freed and reused.
        last = places.argmax()
        rows[groups[last], places[last]] = destination
    table.tables_changed(slots)


def _require_distinct(values: Int64Array, name: str) -> None:
    if len(np.unique(values)) != len(values):
        raise PlanError(f"{name}: one is named twice")
