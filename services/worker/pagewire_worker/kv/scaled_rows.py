"""Keys and values as int8, each of a token and head with a scale of its own.

The float32 scale lies behind the numbers, in the same row of bytes, so that every copy of a block
has its scales.
"""

from typing import Final

import torch
from torch import Tensor

SCALED: Final = torch.int8
"""Type of such a cache. Models do not compute in it."""

SCALE_BYTES: Final = 4

_LEAST_LARGEST: Final = 2.0**-100
"""Least number that a scale is made of, as in the kernels: the reciprocal of a smaller one would be
infinite."""


def row_size(head_dim: int, dtype: torch.dtype) -> int:
    """Return how many elements of a cache of type `dtype` a key or value of one head takes."""
    return head_dim + SCALE_BYTES if dtype == SCALED else head_dim


def to_rows(states: Tensor) -> Tensor:
    """Return finite `states` [..., head_dim] as rows, int8 [..., head_dim + SCALE_BYTES].

    The greatest number becomes 127 or -127; the others are rounded to even.
    """
    numbers = states.float()
    largest = numbers.abs().amax(dim=-1, keepdim=True).clamp(min=_LEAST_LARGEST)
    whole = (numbers * (127.0 / largest)).round().to(SCALED)
    return torch.cat((whole, (largest / 127.0).view(SCALED)), dim=-1)


def from_rows(rows: Tensor) -> Tensor:
    """Return the numbers of rows [..., head_dim + SCALE_BYTES], float32 [..., head_dim]."""
    whole, scales = rows[..., :-SCALE_BYTES], rows[..., -SCALE_BYTES:]
    return whole.float() * scales.contiguous().view(torch.float32)
