"""Sampled tokens of a step, and their log-probabilities, on the device."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities and ranks of some tokens, on the device.

    Attributes:
        logprobs: [rows] float32.
        ranks: [rows] int64, number of tokens that are at least as likely, the token included.
        top_ids, top_logprobs: [rows, most requested], most likely first; None without any.
    """

    logprobs: Tensor
    ranks: Tensor
    top_ids: Tensor | None = None
    top_logprobs: Tensor | None = None


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """Sampled tokens of a step, on the device.

    Attributes:
        token_ids: [rows] int64, valid ids in every row.
        logprobs: Of the raw logits; None if no row requested any.
        faults: [rows], not 0 where a logit is NaN or +inf: the token then means nothing. None if
            there are no rows.
        kv_faults: [tokens] int64 of all tokens of the step, as StepBatch.faults; None until they
            are known.
    """

    token_ids: Tensor
    logprobs: TokenLogprobs | None = None
    faults: Tensor | None = None
    kv_faults: Tensor | None = None
