"""Sums over the vocabulary whose bits do not depend on how many rows there are. Owns no state."""

import torch
from torch import Tensor

_SPAN = 1024
"""Values that are summed as one; far fewer than torch gives to several threads."""


def logsumexp(logits: Tensor) -> Tensor:
    """Return log(sum(exp)) per row of [rows, vocab], float32 [rows, 1].

    torch's own lets all threads add up a row that is alone, and one thread each row of several: the
    last bit of a token's log-probability would tell how busy the worker was.
    """
    largest = logits.amax(dim=1, keepdim=True)
    largest = largest.masked_fill(largest.isinf(), 0.0)
    num_spans = -(-logits.shape[1] // _SPAN)
    spans = logits.new_zeros((len(logits), num_spans * _SPAN))
    torch.sub(logits, largest, out=spans[:, : logits.shape[1]]).exp_()
    sums = spans.view(len(logits), num_spans, _SPAN).sum(dim=2)
    return sums.sum(dim=1, keepdim=True).log() + largest
