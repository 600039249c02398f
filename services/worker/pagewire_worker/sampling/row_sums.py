"""Sums over the vocabulary whose bits do not depend on the number of rows."""

import torch
from torch import Tensor

SPAN = 1024
"""Values per partial sum; far fewer than torch splits among several threads."""


def logsumexp(logits: Tensor) -> Tensor:
    """Return log(sum(exp)) per row of [rows, vocab], float32 [rows, 1].

    torch's own version sums a single row with all threads, and several rows with one thread each.
    The last bit of a token's log-probability would then depend on the load of the worker.
    """
    largest = logits.amax(dim=1, keepdim=True)
    largest = largest.masked_fill(largest.isinf(), 0.0)
    num_spans = -(-logits.shape[1] // SPAN)
    if logits.device.type != "cpu":
        num_spans = 1 << (num_spans - 1).bit_length()
    spans = logits.new_zeros((len(logits), num_spans * SPAN))
    torch.sub(logits, largest, out=spans[:, : logits.shape[1]]).exp_()
    sums = sum_spans(spans) if logits.device.type == "cpu" else sum_halves(spans)
    return sums.log() + largest


def sum_spans(values: Tensor) -> Tensor:
    """Return the sum per row of [rows, n spans], float32 [rows, 1]; on a CPU."""
    sums = values.view(len(values), -1, SPAN).sum(dim=2)
    return sums.sum(dim=1, keepdim=True)


def sum_halves(values: Tensor) -> Tensor:
    """Return the sum per row of [rows, a power of 2], float32 [rows, 1]; on any device.

    Overwrites `values`. CUDA cuts a row into more pieces when there are fewer rows. Additions
    element by element do not depend on that: the second half is added to the first, until one
    value is left.
    """
    while values.shape[1] > 1:
        half = values.shape[1] // 2
        values = values[:, :half].add_(values[:, half:])
    return values
