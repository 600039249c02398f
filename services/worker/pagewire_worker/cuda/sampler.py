"""Samples on CUDA: rules by torch, filters and noise by kernels, without waiting for the device."""

import torch
from torch import Tensor

from pagewire_worker.backend.device_copy import rows_to_device, to_device
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask
from pagewire_worker.sampling.logit_rules import apply_rules
from pagewire_worker.sampling.logprobs import token_logprobs
from pagewire_worker.sampling.sampling_table import NO_LOGPROBS, SamplingRows
from pagewire_worker.triton_kernels.filter_thresholds import filter_thresholds
from pagewire_worker.triton_kernels.sample_tokens import greedy_tokens, sample_tokens


def sample(
    logits: Tensor, rows: SamplingRows, masks: GrammarBitmask | None = None
) -> SampledTokens:
    """Choose one token per row of `logits` [rows, vocab], float32. Does not change `logits`.

    The tokens are distributed as with pagewire_worker.sampling.sampler.sample.
    """
    ruled = apply_rules(logits, rows, masks)
    faults = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    token_ids = _choose(ruled, rows, faults)
    if (rows.num_logprobs == NO_LOGPROBS).all():
        return SampledTokens(token_ids, faults=faults)
    num_top = int(rows.num_logprobs.max())
    return SampledTokens(token_ids, token_logprobs(logits, token_ids, num_top), faults)


def _choose(logits: Tensor, rows: SamplingRows, faults: Tensor) -> Tensor:
    """Return a token per row, and set `faults` of rows that are not finite."""
    if not (rows.temperature > 0).any():
        return greedy_tokens(logits, faults=faults)
    temperature = to_device(rows.temperature, logits.device)
    return sample_tokens(
        logits,
        temperature,
        rows.seed_low,
        rows.seed_high,
        rows.position,
        rows.choice,
        _thresholds(logits, temperature, rows),
        faults=faults,
    )


def _thresholds(logits: Tensor, temperature: Tensor, rows: SamplingRows) -> Tensor | None:
    """Return the minimum of logits / temperature for each row; None if there are no filters."""
    if (rows.min_p == 0).all() and (rows.top_k == 0).all() and (rows.top_p >= 1).all():
        return None
    min_p, top_p = rows_to_device((rows.min_p, rows.top_p), logits.device)
    top_k = to_device(rows.top_k, logits.device)
    return filter_thresholds(logits, temperature, min_p, top_k, top_p)


def warm_up(vocab_size: int, device: torch.device) -> None:
    """Compile the kernels, so that no request waits for the compiler."""
    logits = torch.zeros((1, vocab_size), dtype=torch.float32, device=device)
    heat = torch.ones(1, dtype=torch.float32, device=device)
    words = torch.zeros(1, dtype=torch.int64, device=device)
    faults = torch.zeros_like(words)
    greedy_tokens(logits, faults=faults)
    for threshold in (None, filter_thresholds(logits, heat, heat, words, heat)):
        sample_tokens(logits, heat, words, words, words, words, threshold, faults=faults)
