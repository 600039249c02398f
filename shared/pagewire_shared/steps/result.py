"""Results of steps: structs of arrays over slots, as the worker makes and the scheduler reads them.

Names and meanings are those of worker_attach.proto.
"""
# ruff: noqa: RUF009 - `column` makes a field, as dataclasses.field does

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic

from pagewire_shared.steps.columns import (
    F32_COMPACT,
    F32_LIST,
    U32_COMPACT,
    U32_LIST,
    FloatsT,
    IntsT,
    column,
)


@dataclass(frozen=True, slots=True)
class StepFailure:
    """The reason why a step failed; culprit slots are empty when unknown."""

    message: str
    culprit_slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLogprobs(Generic[IntsT, FloatsT]):
    """Log-probabilities of the prompt tokens that a step's states predict.

    Attributes:
        slots: Slots of the prompts, in the order of the plan.
        first_positions: Position in the prompt of the first token reported, per slot.
        counts: Tokens reported, per slot.
        logprobs, ranks: Per token, of all slots one after the other.
        num_top: Alternatives per token; empty when there are no alternatives at all.
        top_token_ids, top_logprobs: The alternatives, most likely first.
    """

    slots: IntsT = column(U32_LIST, group="slots")
    first_positions: IntsT = column(U32_LIST, group="slots")
    counts: IntsT = column(U32_LIST, group="slots")
    logprobs: FloatsT = column(F32_LIST)
    ranks: IntsT = column(U32_LIST)
    num_top: IntsT = column(U32_LIST)
    top_token_ids: IntsT = column(U32_LIST)
    top_logprobs: FloatsT = column(F32_LIST)


@dataclass(frozen=True, slots=True)
class StepResult(Generic[IntsT, FloatsT]):
    """The outcome of one plan.

    Attributes:
        slots: Slots that sampled or pooled, in the order of the plan.
        counts: Tokens per such slot: one, and the drafts before it that were right; 0 for one that
            pooled or was left out.
        token_ids: The tokens, one after the other.
        logprobs, ranks: One per token, or empty when no slot asked.
        num_top: Alternatives per token, or empty when no token has any.
        top_token_ids, top_logprobs: The alternatives, most likely first.
        prompt: Of slots that report log-probabilities of their prompts; None when none does.
        vectors: Of the slots that pooled, one after the other, as little-endian f32.
        failed_slots: Slots of the plan whose sequences are broken; the rest of the result holds.
        failed_reason: Why they are broken.
        model_time_us: From the start of the forward pass to the sampled ids; 0 when unknown.
        step_time_us: From the receipt of the plan to the result; 0 when unknown.
        given_up: Slots left out that will never get a mask, and why.
        num_drafts: Drafts that the worker has for the places behind the newest token, per slot;
            empty for none at all.
        num_predicted: Drafts that were verified and came from what the client predicted, per slot;
            empty for none at all.
    """

    generation: int
    incarnation: int
    step_id: int
    _: KW_ONLY
    slots: IntsT = column(U32_LIST)
    counts: IntsT = column(U32_LIST)
    token_ids: IntsT = column(U32_LIST)
    logprobs: FloatsT = column(F32_LIST)
    ranks: IntsT = column(U32_LIST)
    num_top: IntsT = column(U32_LIST)
    top_token_ids: IntsT = column(U32_COMPACT)
    top_logprobs: FloatsT = column(F32_COMPACT)
    prompt: PromptLogprobs[IntsT, FloatsT] | None = None
    vectors: bytes = b""
    failed_slots: IntsT = column(U32_LIST)
    failed_reason: str = ""
    failure: StepFailure | None = None
    model_time_us: int = 0
    step_time_us: int = 0
    given_up: Mapping[int, str] = field(default_factory=dict)
    num_drafts: IntsT = column(U32_LIST)
    num_predicted: IntsT = column(U32_LIST)


ListResult = StepResult[Sequence[int], Sequence[float]]
"""A result as the scheduler reads it: its columns are lists, never numpy arrays."""
