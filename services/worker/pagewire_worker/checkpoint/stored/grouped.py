"""Integers whose groups have a scale and perhaps a zero point."""

import torch
from torch import Tensor

CHUNK_ROWS = 1024
"""Outputs that are computed at once, so that few intermediate values exist."""


def dequantized(
    codes: Tensor, scales: Tensor, zeros: Tensor | float, group_of: Tensor | int
) -> Tensor:
    """Return (codes - zeros) * scales in float32.

    Args:
        codes: [outputs, inputs], integers.
        scales: [outputs, groups].
        zeros: [outputs, groups], or one for all.
        group_of: Inputs per group, or the group of each input, [inputs].
    """
    num_outputs, num_inputs = codes.shape
    result = torch.empty((num_outputs, num_inputs), dtype=torch.float32)
    for begin in range(0, num_outputs, CHUNK_ROWS):
        rows = slice(begin, begin + CHUNK_ROWS)
        zero = spread(zeros[rows].float(), group_of) if isinstance(zeros, Tensor) else zeros
        result[rows] = (codes[rows].float() - zero) * spread(scales[rows].float(), group_of)
    return result


def spread(values: Tensor, group_of: Tensor | int) -> Tensor:
    """Return the value of each input, [rows, inputs], for values of groups, [rows, groups]."""
    if isinstance(group_of, int):
        return values.repeat_interleave(group_of, dim=1)
    return values.index_select(1, group_of.long())
