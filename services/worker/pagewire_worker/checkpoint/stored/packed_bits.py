"""Unpacks small integers from 32-bit words."""

import torch
from torch import Tensor

WORD = 32
"""Bits of a word."""


def unpacked(words: Tensor, bits: int, dim: int) -> Tensor:
    """Return unsigned integers as uint8: `WORD / bits` times as many along `dim`.

    The lowest bits of a word are the first integer.

    Args:
        words: int32, two dimensions.
        bits: 2, 4 or 8.
        dim: 0 or 1.
    """
    # The lowest byte of a word is the first in memory.
    parts = words.contiguous().view(torch.uint8).view(*words.shape, WORD // 8)
    if bits < 8:
        shifted = [(parts >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
        parts = torch.stack(shifted, dim=-1).flatten(2)
    return parts.flatten(1) if dim == 1 else parts.transpose(1, 2).flatten(0, 1)
