"""Sampling on CUDA: rules by torch, filters and noise by kernels that never ask the device."""

import numpy as np
from torch import Tensor

from pagewire_worker.device_copy import to_device
from pagewire_worker.logit_rules import apply_rules
from pagewire_worker.logprobs import token_logprobs
from pagewire_worker.sampler import SampledTokens
from pagewire_worker.sampling_table import NO_LOGPROBS, SamplingRows
from pagewire_worker.token_masks import TokenMasks
from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens


def sample(logits: Tensor, rows: SamplingRows, masks: TokenMasks | None = None) -> SampledTokens:
    """Choose one token per row of `logits` [rows, vocab], float32, by the law of
    pagewire_worker.sampler.sample. Does not change `logits`."""
    ruled = apply_rules(logits, rows, masks)
    token_ids = _choose(ruled, rows)
    if (rows.num_logprobs == NO_LOGPROBS).all():
        return SampledTokens(token_ids)
    num_top = int(rows.num_logprobs.max())
    return SampledTokens(token_ids, token_logprobs(logits, token_ids, num_top))


def _choose(logits: Tensor, rows: SamplingRows) -> Tensor:
    if not (rows.temperature > 0).any():
        return greedy_tokens(logits)
    temperature = to_device(rows.temperature, logits.device)
    return sample_tokens(
        logits,
        temperature,
        rows.seed_low,
        rows.seed_high,
        rows.position,
        rows.choice,
        _thresholds(logits, temperature, rows),
    )


def _thresholds(logits: Tensor, temperature: Tensor, rows: SamplingRows) -> Tensor | None:
    """Return what logits / temperature must reach in each row; None where nothing is filtered."""
    if (rows.min_p == 0).all() and (rows.top_k == 0).all() and (rows.top_p >= 1).all():
        return None
    numbers = np.stack((rows.min_p, rows.top_p)).astype(np.float32)
    min_p, top_p = to_device(numbers, logits.device).unbind()
    top_k = to_device(rows.top_k, logits.device)
    return filter_thresholds(logits, temperature, min_p, top_k, top_p)
