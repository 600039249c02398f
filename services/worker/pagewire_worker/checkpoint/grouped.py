"""Integers whose groups have a scale and perhaps a zero point."""

import torch
from torch import Tensor

CHUNK_ROWS = 1024
"""Outputs that are computed at once, so that few intermediate values exist."""


def dequantized(
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor | float,
    group_of: Tensor | int,
    table: Tensor | None = None,
) -> Tensor:
    """Return (codes - zeros) * scales in float32.

    Args:
        codes: [outputs, inputs], integers, or places in `table`.
        scales: [outputs, groups].
        zeros: [outputs, groups], or one for all.
        group_of: Inputs per group, or the group of each input, [inputs].
        table: What codes stand for, float32; None for themselves.
    """
    # Transposed bytes are moved once, not the floats of every step.
    codes = codes.contiguous()
    num_outputs, num_inputs = codes.shape
    result = torch.empty((num_outputs, num_inputs), dtype=torch.float32)
    for begin in range(0, num_outputs, CHUNK_ROWS):
        rows = slice(begin, begin + CHUNK_ROWS)
        found = codes[rows] if table is None else table[codes[rows].int()]
        values = result[rows].copy_(found)
        if isinstance(group_of, int):
            values = values.view(len(values), -1, group_of)
        values -= _spread(zeros[rows], group_of) if isinstance(zeros, Tensor) else zeros
        values *= _spread(scales[rows], group_of)
    return result


def size_if_in_order(groups: Tensor, num_groups: int) -> Tensor | int:
    """Return the size of groups that come in order and are of one size, else a copy of `groups`.

    Args:
        groups: The group of each input, [inputs].
    """
    size, rest = divmod(len(groups), num_groups)
    if not rest and bool((groups == torch.arange(len(groups)) // size).all()):
        return size
    return groups.clone()


def order_by_group(groups: Tensor, num_groups: int) -> Tensor | None:
    """Return the inputs in the order of their groups; None if groups are of several sizes.

    Args:
        groups: The group of each input, [inputs].
    """
    counts = groups.bincount(minlength=num_groups)
    return groups.argsort(stable=True) if bool((counts == counts[0]).all()) else None


def _spread(values: Tensor, group_of: Tensor | int) -> Tensor:
    """Return the value of each input, in a shape that those of the inputs can be computed with.

    Args:
        values: Of groups, [rows, groups].
        group_of: As in `dequantized`.
    """
    wide = values.float()
    if isinstance(group_of, int):
        return wide.unsqueeze(-1)
    return wide.index_select(1, group_of.long())
