"""Computes and packs log-probabilities, ranks and alternatives of tokens under raw logits."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pagewire_shared.kv.arrays import NO_FLOATS, NO_INTS, F32Array, Int64Array, U32Array
from pagewire_worker.backend.sampled_tokens import TokenLogprobs
from pagewire_worker.sampling.row_sums import logsumexp


@dataclass(frozen=True, slots=True)
class PackedTop:
    """Alternatives on the host: numbers per token, then ids and log-probabilities of all."""

    counts: U32Array
    token_ids: U32Array
    logprobs: F32Array


NO_TOP = PackedTop(NO_INTS, NO_INTS, NO_FLOATS)


def token_logprobs(logits: Tensor, token_ids: Tensor, num_top: int) -> TokenLogprobs:
    """Return the log-probabilities of `token_ids` [rows] under `logits` [rows, vocab], float32.

    Args:
        logits: Not changed.
        num_top: Alternatives per row; a number above the vocabulary means all of it.
    """
    own = logits.gather(1, token_ids.unsqueeze(1))
    total = logsumexp(logits)
    logprobs = (own - total).squeeze(1)
    # Raw logits are compared: subtracting the sum may make unequal values equal.
    ranks = (logits >= own).sum(dim=1)
    num_top = min(num_top, logits.shape[1])
    if num_top <= 0:
        return TokenLogprobs(logprobs, ranks)
    top = torch.topk(logits, num_top, dim=1)
    return TokenLogprobs(logprobs, ranks, top.indices, top.values - total)


def pack_top(found: TokenLogprobs, wanted: Int64Array) -> PackedTop:
    """Return the alternatives of every row, as many as `wanted` [rows]; negative means no row."""
    if found.top_ids is None or found.top_logprobs is None:
        return NO_TOP
    ids = found.top_ids.cpu().numpy()
    values: F32Array = found.top_logprobs.cpu().numpy()
    counts = np.clip(wanted, 0, ids.shape[1])
    is_wanted = np.arange(ids.shape[1])[None, :] < counts[:, None]
    return PackedTop(counts.astype(np.uint32), ids[is_wanted].astype(np.uint32), values[is_wanted])


def join_logprobs(parts: list[TokenLogprobs]) -> TokenLogprobs:
    """Return the rows of all `parts` (at least one) as one; all parts have equal num_top."""
    ids = [one.top_ids for one in parts if one.top_ids is not None]
    values = [one.top_logprobs for one in parts if one.top_logprobs is not None]
    return TokenLogprobs(
        logprobs=torch.cat([one.logprobs for one in parts]),
        ranks=torch.cat([one.ranks for one in parts]),
        top_ids=torch.cat(ids) if ids else None,
        top_logprobs=torch.cat(values) if values else None,
    )
