"""Filters on logits: min-p, top-k and top-p, in this order. Filtered logits become -inf.

All three decide by the value of a token alone. Tokens that equal the last kept one are kept too,
so the outcome never depends on the order in which equal logits were sorted.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.sampling.row_sums import logsumexp

SORTED_CANDIDATES = 1024
"""Number of largest logits that are sorted first; the whole vocabulary is sorted if needed."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def apply_filters(logits: Tensor, min_p: Floats, top_k: Ints, top_p: Floats) -> Tensor:
    """Return `logits` [rows, vocab] with filtered ones set to -inf.

    Args:
        logits: Already divided by the temperature; not changed.
        min_p: [rows], 0 keeps all.
        top_k: [rows], 0 keeps all.
        top_p: [rows], 1 keeps all.
    """
    vocab_size = logits.shape[1]
    rows = np.flatnonzero(min_p > 0)
    if len(rows):
        logits = _replace(logits, rows, _filter_min_p(_pick(logits, rows), min_p[rows]))
    rows = np.flatnonzero((top_k > 0) & (top_k < vocab_size))
    if len(rows):
        logits = _replace(logits, rows, _filter_top_k(_pick(logits, rows), top_k[rows]))
    rows = np.flatnonzero(top_p < 1)
    if len(rows):
        logits = _replace(logits, rows, _filter_top_p(_pick(logits, rows), top_p[rows]))
    return logits


def _pick(logits: Tensor, rows: npt.NDArray[np.intp]) -> Tensor:
    return logits.index_select(0, to_device(rows, logits.device))


def _replace(logits: Tensor, rows: npt.NDArray[np.intp], values: Tensor) -> Tensor:
    if len(rows) == len(logits):
        return values
    return logits.index_copy(0, to_device(rows, logits.device), values)


def _column(values: npt.NDArray[np.generic], logits: Tensor) -> Tensor:
    return to_device(values, logits.device).unsqueeze(1)


def _keep_from(logits: Tensor, threshold: Tensor) -> Tensor:
    return logits.masked_fill(logits < threshold, float("-inf"))


def _filter_min_p(logits: Tensor, min_p: Floats) -> Tensor:
    """Keep p >= min_p * max p, compared as logits."""
    largest = logits.amax(dim=1, keepdim=True)
    return _keep_from(logits, largest + _column(min_p, logits).log())


def _filter_top_k(logits: Tensor, top_k: Ints) -> Tensor:
    """Keep the values that reach the k-th largest."""
    largest = torch.topk(logits, int(top_k.max()), dim=1).values
    return _keep_from(logits, largest.gather(1, _column(top_k, logits) - 1))


def _filter_top_p(logits: Tensor, top_p: Floats) -> Tensor:
    """Keep the most likely tokens whose probabilities first reach top_p."""
    wanted = _column(top_p, logits)
    total = logsumexp(logits)
    num_sorted = min(SORTED_CANDIDATES, logits.shape[1])
    largest = torch.topk(logits, num_sorted, dim=1).values
    is_kept, reaches_all = _nucleus(largest, total, wanted)
    if num_sorted < logits.shape[1] and not reaches_all:
        largest = logits.sort(dim=1, descending=True).values
        is_kept, _ = _nucleus(largest, total, wanted)
    return _keep_from(logits, largest.gather(1, is_kept.sum(dim=1, keepdim=True) - 1))


def _nucleus(largest: Tensor, total: Tensor, wanted: Tensor) -> tuple[Tensor, bool]:
    """Return the mask of kept sorted logits, and whether they reach top_p in every row."""
    probabilities = (largest - total).exp()
    reached = probabilities.double().cumsum(dim=1)
    before = reached - probabilities
    is_kept = before < wanted
    return is_kept, bool((reached[:, -1:] >= wanted).all())
