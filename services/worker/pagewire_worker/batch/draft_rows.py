"""Rows of a step that verify drafts: tokens guessed for the places behind the known ones.

A draft is right if it equals the token that is sampled at its place. Sampling is a formula of seed
and position, and in exact mode rows have the bits of single decodes. So the tokens of a sequence
are the same with and without drafts, at any temperature. This is the acceptance test of Leviathan
et al., 2023, "Fast Inference from Transformers via Speculative Decoding", for samples that are
fixed beforehand.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import Int64Array
from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.plan.plan_error import PlanError
from pagewire_worker.sampling.grammar_bitmask import NO_ROWS

DraftSource = Callable[[int, int], Sequence[int]]
"""Returns the drafts for the places from a position of a slot on, (slot, position) -> [n]."""

NOT_A_DRAFT = -1


def no_drafts(slot: int, position: int) -> Sequence[int]:
    """Return no drafts."""
    return ()


@dataclass(frozen=True, slots=True)
class DraftRows:
    """The drafts of a step that has any.

    Attributes:
        num_drafts: Drafts per scheduled slot, [slots]; they follow its certain tokens.
        offsets: Place of each sampling row behind the last certain token of its slot, [samples].
        expected: The draft that the sample of each row is compared with; NOT_A_DRAFT for the last
            row of each slot, [samples].
    """

    num_drafts: Int64Array
    offsets: Int64Array
    expected: Int64Array

    def spread(
        self, is_sampling: npt.NDArray[np.bool_], *firsts: Int64Array
    ) -> tuple[Int64Array, ...]:
        """Return a value per sampling row for each of `firsts`, which grow by one per row.

        Args:
            is_sampling: Which scheduled slots sample, [slots].
            firsts: Values of the first row of each slot that samples, [sampling slots] each.
        """
        num_rows = self.num_drafts[is_sampling] + 1
        return tuple(values.repeat(num_rows) + self.offsets for values in firsts)

    def owners(self, is_sampling: npt.NDArray[np.bool_], slots: Int64Array) -> Int64Array:
        """Return the slot of each sampling row, out of the scheduled `slots` [slots]."""
        return slots[is_sampling].repeat(self.num_drafts[is_sampling] + 1)

    def verify(self, token_ids: Int64Array, unmasked: Int64Array = NO_ROWS) -> "VerifiedRows":
        """Compare the sampled `token_ids` [samples] with the drafts.

        A draft counts as wrong if the row behind it is one of `unmasked` [n], whose samples mean
        nothing.
        """
        is_wrong = token_ids != self.expected
        is_wrong[unmasked] = True
        is_wrong[unmasked[self.offsets[unmasked] > 0] - 1] = True
        num_wrong = np.cumsum(is_wrong)
        before = num_wrong - is_wrong
        firsts = np.flatnonzero(self.offsets == 0)
        num_rows = np.diff(np.append(firsts, len(self.offsets)))
        is_kept = before == before[firsts].repeat(num_rows)
        return VerifiedRows(is_kept, np.add.reduceat(is_kept, firsts).astype(np.int64))


@dataclass(frozen=True, slots=True)
class VerifiedRows:
    """The rows of a step whose samples count.

    Attributes:
        is_kept: Whether every draft up to the row was right, [samples].
        counts: Samples that count, per slot that samples, at least 1.
    """

    is_kept: npt.NDArray[np.bool_]
    counts: Int64Array


def check_grants(table: SlotTable, plan: StepPlan, ends: Int64Array) -> Int64Array | None:
    """Return how many drafts a plan allows per scheduled slot; None for none at all.

    Args:
        ends: Tokens computed per scheduled slot after the step, without drafts, [slots].

    Raises:
        PlanError: A slot may not verify as many.
    """
    if not np.any(plan.num_drafts):
        return None
    granted = np.asarray(plan.num_drafts, dtype=np.int64)
    slots = np.asarray(plan.slots, dtype=np.int64)
    if len(granted) != len(slots):
        raise PlanError(f"{len(granted)} num_drafts for {len(slots)} slots")
    reach, limits = ends + granted, table.limits
    is_plain = np.asarray(plan.samples, dtype=bool) & ~table.is_beam[slots]
    is_plain &= ~table.pooling.is_pooling(slots)
    rules = (
        (~is_plain, "drafts behind what samples no token"),
        (reach > table.num_blocks[slots] * limits.block_size, "too few blocks for its drafts"),
        (reach > limits.max_model_len, "a draft behind the context"),
    )
    for is_broken, text in rules:
        if (broken := is_broken & (granted > 0)).any():
            culprits = tuple(slots[broken].tolist())
            raise PlanError(f"slots {list(culprits)}: {text}", culprits)
    return granted


def place_drafts(
    table: SlotTable, slots: Int64Array, ends: Int64Array, granted: Int64Array, source: DraftSource
) -> Int64Array:
    """Write the drafts that `source` has behind the tokens of `slots`; return how many of each.

    Args:
        ends: Known tokens per slot, [slots].
        granted: The most drafts per slot, [slots].
    """
    counts = np.zeros_like(granted)
    for index in np.flatnonzero(granted).tolist():
        slot, end = int(slots[index]), int(ends[index])
        drafts = source(slot, end)[: granted[index]]
        counts[index] = len(drafts)
        if len(drafts):
            table.write_drafts(slot, end, np.array(drafts, dtype=np.int64))
    return counts


def draft_rows(
    table: SlotTable,
    slots: Int64Array,
    ends: Int64Array,
    num_drafts: Int64Array,
    is_sampling: npt.NDArray[np.bool_],
) -> DraftRows:
    """Return the rows of a step, [slots] each, whose drafts lie in the tokens of their slots."""
    num_rows = num_drafts[is_sampling] + 1
    firsts = np.cumsum(num_rows) - num_rows
    offsets = np.arange(int(num_rows.sum())) - firsts.repeat(num_rows)
    owners, places = slots[is_sampling].repeat(num_rows), ends[is_sampling].repeat(num_rows)
    expected = table.read_tokens(owners, places + offsets)
    expected[firsts + num_rows - 1] = NOT_A_DRAFT
    return DraftRows(num_drafts, offsets, expected)
