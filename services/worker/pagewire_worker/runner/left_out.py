"""Leaves rows out of a step or its result: rows whose masks are late, void rows, and rows behind
wrong drafts.

A void row was planned on a token that an earlier step did not sample. The scheduler plans the last
token of such a sequence again. Sampling depends on the position only, so the sequence gets the
token that it would have got.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import NO_FLOATS, Int64Array
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepResult
from pagewire_worker.batch.draft_rows import DraftRows, VerifiedRows
from pagewire_worker.batch.slots import SlotTable
from pagewire_worker.sampling.grammar_bitmask import NO_ROWS, GrammarBitmask


@dataclass(slots=True)
class AwaitedMasks:
    """Waits for the masks of a step, and keeps the rows that have no mask.

    Attributes:
        drafts: The rows that verify drafts; None without any.
        unmasked: Rows without a mask in time, [n]; their samples mean nothing.
        late: Those of them that are the first of their slots, which get no token, [n].
        given_up: Late rows that will never have a mask, with the reason.
    """

    wait: Callable[[], GrammarBitmask | None]
    drafts: DraftRows | None = None
    unmasked: Int64Array = field(default_factory=lambda: NO_ROWS)
    late: Int64Array = field(default_factory=lambda: NO_ROWS)
    given_up: Mapping[int, str] = field(default_factory=dict)

    def __call__(self) -> GrammarBitmask | None:
        """Return the masks of the rows that have one; None if no row has one."""
        masks = self.wait()
        if masks is None:
            return None
        self.unmasked = self.late = masks.late
        if self.drafts is not None:
            self.late = masks.late[self.drafts.offsets[masks.late] == 0]
        self.given_up = {row: masks.given_up[row] for row in masks.given_up if row in self.late}
        return masks if len(masks.rows) else None


def without_void_rows(table: SlotTable, plan: StepPlan) -> StepPlan:
    """Return `plan` without the rows that need a token which an earlier step left out."""
    slots = np.asarray(plan.slots, dtype=np.int64)
    behind = table.is_behind[slots]
    if not behind.any():
        return plan
    starts = np.asarray(plan.starts, dtype=np.int64)
    num_new = np.asarray(plan.num_new_tokens, dtype=np.int64)
    is_run = ~behind | (starts + num_new <= table.num_tokens[slots])
    num_drafts = np.asarray(plan.num_drafts, dtype=np.uint8)
    return replace(
        plan,
        num_drafts=num_drafts[is_run] if len(num_drafts) else num_drafts,
        slots=slots[is_run].astype(np.uint32),
        starts=starts[is_run].astype(np.uint32),
        num_new_tokens=num_new[is_run].astype(np.uint32),
        samples=np.asarray(plan.samples, dtype=np.uint8)[is_run],
    )


def leave_out(
    result: StepResult,
    plan: StepPlan,
    sampling_slots: Int64Array,
    awaited: AwaitedMasks,
    verified: VerifiedRows | None = None,
) -> StepResult:
    """Return `result` without tokens of late rows and of rows behind wrong drafts, and with the
    slots of `plan` that it lacks.

    Args:
        result: Result of all rows that were run; counts are those without rows behind wrong drafts.
        sampling_slots: Slots that sampled, [samples].
        verified: The rows whose samples count; None for all.
    """
    samples = np.asarray(plan.samples, dtype=bool)
    if len(awaited.late) == 0 and len(result.slots) == samples.sum():
        return result if verified is None else _tokens_of(result, verified.is_kept)
    late_slots = sampling_slots[awaited.late]
    counts_of = dict(zip(np.asarray(result.slots).tolist(), result.counts, strict=True))
    slots = np.asarray(plan.slots, dtype=np.uint32)[samples]
    counts = np.array([int(counts_of.get(slot, 0)) for slot in slots.tolist()], dtype=np.uint32)
    counts[np.isin(slots, late_slots)] = 0
    kept = np.ones(len(sampling_slots), dtype=bool) if verified is None else verified.is_kept.copy()
    kept[np.isin(sampling_slots, late_slots)] = False
    given_up = {int(sampling_slots[row]): text for row, text in awaited.given_up.items()}
    return replace(_tokens_of(result, kept), slots=slots, counts=counts, given_up=given_up)


def _tokens_of(result: StepResult, kept: npt.NDArray[np.bool_]) -> StepResult:
    """Return `result` with only the tokens that are `kept`."""
    has_logprobs, has_top = len(result.logprobs) > 0, len(result.num_top) > 0
    num_top = np.asarray(result.num_top, dtype=np.uint32)
    kept_top = np.repeat(kept, num_top) if has_top else np.zeros(0, dtype=bool)
    return replace(
        result,
        token_ids=np.asarray(result.token_ids, dtype=np.uint32)[kept],
        logprobs=np.asarray(result.logprobs, dtype=np.float32)[kept] if has_logprobs else NO_FLOATS,
        ranks=np.asarray(result.ranks, dtype=np.uint32)[kept] if has_logprobs else result.ranks,
        num_top=num_top[kept] if has_top else result.num_top,
        top_token_ids=np.asarray(result.top_token_ids, dtype=np.uint32)[kept_top],
        top_logprobs=np.asarray(result.top_logprobs, dtype=np.float32)[kept_top],
    )
