"""Samples the tokens of a step: greedy ones through the backend, others through a sampler."""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.backend.backend import ModelBackend
from pagewire_worker.backend.sampled_tokens import SampledTokens
from pagewire_worker.batch.input_batch import PreparedStep
from pagewire_worker.runner.results import NO_SAMPLES
from pagewire_worker.sampling.grammar_bitmask import GrammarBitmask, apply_masks, require_tokens
from pagewire_worker.sampling.row_maximum import argmax_of_rows
from pagewire_worker.sampling.sampler import logit_faults
from pagewire_worker.sampling.sampling_table import SamplingRows

WaitForMasks = Callable[[], GrammarBitmask | None]


class Sampler(Protocol):
    """Chooses tokens; see pagewire_worker.sampling.sampler.sample."""

    def __call__(
        self, logits: Tensor, rows: SamplingRows, masks: GrammarBitmask | None = None
    ) -> SampledTokens:
        """Choose one token per row of `logits` [rows, vocab], float32."""
        ...


def sample_step(
    backend: ModelBackend,
    sampler: Sampler,
    step: PreparedStep,
    hidden: Tensor,
    wait_for_masks: WaitForMasks,
) -> SampledTokens:
    """Sample from the first rows of `hidden` [outputs, hidden].

    Raises:
        PlanError: A grammar allows no token.
    """
    num_rows = len(step.sampling_slots)
    if num_rows == 0:
        return NO_SAMPLES
    # A backend may have cached the logits of the whole tensor that it returned, not of a slice.
    states = hidden if num_rows == len(hidden) else hidden[:num_rows]
    adapters = step.adapters_of(0, num_rows)
    if step.sampling.is_plain:
        return _sample_plain(backend, step, states, adapters, wait_for_masks())
    logits = backend.logits(states, adapters)
    masks = wait_for_masks()
    if masks is not None:
        require_tokens(masks, step.sampling_slots, logits.shape[1])
    return sampler(logits, step.sampling, masks)


def _sample_plain(
    backend: ModelBackend,
    step: PreparedStep,
    states: Tensor,
    adapters: AdapterRows | None,
    masks: GrammarBitmask | None,
) -> SampledTokens:
    if masks is None:
        return backend.greedy(states, adapters)
    logits = backend.logits(states, adapters)
    require_tokens(masks, step.sampling_slots, logits.shape[1])
    faults = logit_faults(logits)
    apply_masks(logits, masks)
    return SampledTokens(argmax_of_rows(logits), faults=faults)
