"""What a step sampled, on the device."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What is known of some tokens, on the device.

    Attributes:
        logprobs: [rows] float32.
        ranks: [rows] int64, how many tokens are at least as likely, itself included.
        top_ids, top_logprobs: [rows, most asked for], most likely first; None without any.
    """

    logprobs: Tensor
    ranks: Tensor
    top_ids: Tensor | None = None
    top_logprobs: Tensor | None = None


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """What a step sampled, on the device.

    Attributes:
        token_ids: [rows] int64, each of them a token.
        logprobs: Of the raw logits; None when no row asked.
        faults: [rows], not 0 where some logit is NaN or +inf: the token means nothing. None where
            there are no rows.
        kv_faults: [tokens] int64 of all tokens of the step, as StepBatch.faults; None before it is
            known.
    """

    token_ids: Tensor
    logprobs: TokenLogprobs | None = None
    faults: Tensor | None = None
    kv_faults: Tensor | None = None
