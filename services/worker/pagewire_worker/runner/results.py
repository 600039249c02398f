"""Packs the result of a step: sampled tokens, prompt log-probabilities and vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import (
    NO_FLOATS,
    NO_INTS,
    F32Array,
    Int64Array,
    U32Array,
    pack_f32,
)
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import PromptLogprobs, StepResult
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.batch.draft_rows import VerifiedRows
from pagewire_worker.batch.input_batch import PreparedStep
from pagewire_worker.batch.pooling import Head, Pooled, pool
from pagewire_worker.batch.prompt_logprobs import Logits, prompt_logprobs
from pagewire_worker.sampling.grammar_bitmask import NO_ROWS
from pagewire_worker.sampling.logprobs import NO_TOP, PackedTop, pack_top
from pagewire_worker.sampling.sampling_table import NO_LOGPROBS

NO_SAMPLES = SampledTokens(torch.zeros(0, dtype=torch.int64))


@dataclass(frozen=True, slots=True)
class StepOutputs:
    """Outputs of a step, on the host.

    Attributes:
        prompt: Log-probabilities of prompt tokens; None if none were requested.
        verified: The rows whose samples count; None without drafts: all of them.
    """

    sampled: SampledTokens
    token_ids: U32Array
    prompt: PromptLogprobs | None
    pooled: Pooled
    verified: VerifiedRows | None = None


def empty_result(plan: StepPlan) -> StepResult:
    """Return the answer to a plan that computes nothing."""
    return StepResult(
        generation=plan.generation, incarnation=plan.incarnation, step_id=plan.step_id
    )


def step_outputs(
    step: PreparedStep,
    hidden: Tensor,
    sampled: SampledTokens,
    logits: Logits,
    head: Head | None = None,
    unmasked: Int64Array = NO_ROWS,
) -> StepOutputs:
    """Return the sampled tokens of a step, and what its other states give.

    Args:
        hidden: [outputs, hidden], on the device.
        sampled: On the host.
        logits: Of the model.
        head: Returns class scores [rows, labels] for vectors [rows, hidden]; None without a head.
        unmasked: Rows whose masks did not come, [n]: drafts before them count as wrong.
    """
    token_ids = sampled.token_ids.numpy().astype(np.uint32)
    end = len(hidden) - len(step.pooling.rows)
    prompt = None
    if step.prompt is not None:
        begin = len(token_ids)
        adapters = step.adapters_of(begin, end)
        prompt = prompt_logprobs(step.prompt, hidden[begin:end], adapters, logits)
    verified = None
    if step.drafts is not None:
        verified = step.drafts.verify(sampled.token_ids.numpy(), unmasked)
    pooled = pool(step.pooling, hidden[end:], head)
    return StepOutputs(sampled, token_ids, prompt, pooled, verified)


def pack_result(
    plan: StepPlan,
    step: PreparedStep,
    outputs: StepOutputs,
    model_time_us: int,
    failed_slots: Sequence[int] = (),
    failed_reason: str = "",
) -> StepResult:
    """Return the result of a plan that was run; `failed_slots` failed alone, for that reason.

    Tokens of rows behind wrong drafts are in it, and not in its counts.
    """
    logprobs, ranks, top = _pack_logprobs(outputs.sampled, step)
    counts = step.num_sampled
    if outputs.verified is not None:
        counts = counts.copy()
        counts[counts > 0] = outputs.verified.counts
    return StepResult(
        generation=plan.generation,
        incarnation=plan.incarnation,
        step_id=plan.step_id,
        slots=step.answering_slots.astype(np.uint32),
        counts=counts.astype(np.uint32),
        token_ids=outputs.token_ids,
        logprobs=logprobs,
        ranks=ranks,
        num_top=top.counts,
        top_token_ids=top.token_ids,
        top_logprobs=top.logprobs,
        prompt=outputs.prompt,
        vectors=pack_f32(outputs.pooled.vectors),
        failed_slots=failed_slots,
        failed_reason=failed_reason if len(failed_slots) else "",
        model_time_us=model_time_us,
    )


def _pack_logprobs(
    sampled: SampledTokens, step: PreparedStep
) -> tuple[F32Array, U32Array, PackedTop]:
    found, wanted = sampled.logprobs, step.sampling.num_logprobs
    if found is None:
        return NO_FLOATS, NO_INTS, NO_TOP
    is_unasked = wanted == NO_LOGPROBS
    logprobs: F32Array = found.logprobs.numpy()
    ranks = found.ranks.numpy().astype(np.uint32)
    logprobs[is_unasked] = np.nan
    return logprobs, ranks, pack_top(found, wanted)
