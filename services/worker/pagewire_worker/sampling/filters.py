"""Filters on logits: min-p, top-k and top-p, in this order, each a least value that is kept.

All three decide by the value of a token alone. Tokens that equal the last kept one are kept too,
so the outcome never depends on the order in which equal logits were sorted.
"""

from typing import Final, Protocol

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
Rows = npt.NDArray[np.intp]

NO_LIMIT = float("-inf")


class FilterOps(Protocol):
    """What filters need to know of rows of logits."""

    def largest(self, values: Tensor, count: int) -> Tensor:
        """Return the `count` largest values per row of [rows, n], in falling order."""
        ...

    def log_total(self, logits: Tensor, temperature: Floats, least: Tensor) -> Tensor:
        """Return the log of the sum of e ** (logits / temperature) of each row, [rows, 1].

        Args:
            logits: [rows, vocab].
            temperature: [rows].
            least: [rows, 1]; what is less than it after the division is left out.
        """
        ...


class TorchFilters:
    """The operations by torch."""

    def largest(self, values: Tensor, count: int) -> Tensor:
        """Return the `count` largest values per row of [rows, n], in falling order."""
        if count == values.shape[1]:
            return values.sort(dim=1, descending=True).values
        return torch.topk(values, count, dim=1).values

    def log_total(self, logits: Tensor, temperature: Floats, least: Tensor) -> Tensor:
        """Return the log of the sum of e ** (logits / temperature) of each row, [rows, 1]."""
        scaled = logits / _column(temperature, logits)
        if not bool((least == NO_LIMIT).all()):
            scaled.masked_fill_(scaled < least, NO_LIMIT)
        return logsumexp(scaled)


BY_TORCH: Final = TorchFilters()


def has_filters(min_p: Floats, top_k: Ints, top_p: Floats, vocab_size: int) -> bool:
    """Return whether any row has a filter."""
    return bool(((min_p > 0) | _is_limited(top_k, vocab_size) | (top_p < 1)).any())


def least_kept(
    logits: Tensor,
    temperature: Floats,
    min_p: Floats,
    top_k: Ints,
    top_p: Floats,
    ops: FilterOps = BY_TORCH,
) -> Tensor | None:
    """Return the least logits / temperature that the filters keep, float32 [rows].

    Args:
        logits: [rows, vocab].
        temperature: [rows], above 0.
        min_p: [rows], 0 keeps all.
        top_k: [rows], 0 keeps all.
        top_p: [rows], 1 keeps all.
        ops: Their implementation.

    Returns:
        None if no row has a filter.
    """
    vocab_size = logits.shape[1]
    if not has_filters(min_p, top_k, top_p, vocab_size):
        return None
    least = torch.full((len(logits), 1), NO_LIMIT, device=logits.device)
    if len(rows := np.flatnonzero(min_p > 0)):
        found = _pick(logits, rows).amax(dim=1, keepdim=True) / _column(temperature[rows], logits)
        _raise(least, rows, found + _column(min_p[rows], logits).log())
    if len(rows := np.flatnonzero(_is_limited(top_k, vocab_size))):
        found = ops.largest(_pick(logits, rows), int(top_k[rows].max()))
        found = found.gather(1, _column(top_k[rows], logits) - 1)
        _raise(least, rows, found / _column(temperature[rows], logits))
    if len(rows := np.flatnonzero(top_p < 1)):
        before = least.index_select(0, to_device(rows, logits.device))
        end = _nucleus_end(_pick(logits, rows), temperature[rows], top_p[rows], before, ops)
        _raise(least, rows, end)
    return least.squeeze(1)


def apply_filters(scaled: Tensor, min_p: Floats, top_k: Ints, top_p: Floats) -> Tensor:
    """Return logits / temperature [rows, vocab] with filtered ones set to -inf; see least_kept."""
    least = least_kept(scaled, np.ones(len(scaled), dtype=np.float32), min_p, top_k, top_p)
    return scaled if least is None else scaled.masked_fill(scaled < least.unsqueeze(1), NO_LIMIT)


def _is_limited(top_k: Ints, vocab_size: int) -> npt.NDArray[np.bool_]:
    return (top_k > 0) & (top_k < vocab_size)


def _pick(logits: Tensor, rows: Rows) -> Tensor:
    """Return `rows` of `logits`; if they are all, it is no copy."""
    if len(rows) == len(logits):
        return logits
    return logits.index_select(0, to_device(rows, logits.device))


def _column(values: npt.NDArray[np.generic], logits: Tensor) -> Tensor:
    return to_device(values, logits.device).unsqueeze(1)


def _raise(least: Tensor, rows: Rows, found: Tensor) -> None:
    """Let `least` [n, 1] be at least `found` in `rows`."""
    index = to_device(rows, least.device)
    least.index_copy_(0, index, torch.maximum(least.index_select(0, index), found))


def _nucleus_end(
    logits: Tensor, temperature: Floats, top_p: Floats, least: Tensor, ops: FilterOps
) -> Tensor:
    """Return the least of the likeliest values whose probabilities first reach `top_p`, [rows, 1].

    Values below `least` [rows, 1] have no probability.
    """
    total, wanted = ops.log_total(logits, temperature, least), _column(top_p, logits)
    heat, vocab_size = _column(temperature, logits), logits.shape[1]
    for num_sorted in (min(SORTED_CANDIDATES, vocab_size), vocab_size):
        found = ops.largest(logits, num_sorted) / heat
        found.masked_fill_(found < least, NO_LIMIT)
        is_kept, reaches_all = _nucleus(found, total, wanted)
        if reaches_all:
            break
    return found.gather(1, is_kept.sum(dim=1, keepdim=True) - 1)


def _nucleus(largest: Tensor, total: Tensor, wanted: Tensor) -> tuple[Tensor, bool]:
    """Return the mask of kept sorted values, and whether they reach top_p in every row."""
    probabilities = (largest - total).exp()
    reached = probabilities.double().cumsum(dim=1)
    before = reached - probabilities
    is_kept = before < wanted
    return is_kept, bool((reached[:, -1:] >= wanted).all())
