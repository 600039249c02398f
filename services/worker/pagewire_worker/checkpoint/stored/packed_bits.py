"""Unpacks small integers from 32-bit words."""

import torch
from torch import Tensor

WORD = 32
"""Bits of a word."""


def unpacked(words: Tensor, bits: int, dim: int) -> Tensor:
    """Return unsigned integers as uint8: `WORD / bits` times as many along `dim`.

    The lowest bits of a word are the first integer.

    Args:
        words: int32.
        bits: 2, 4 or 8.
        dim: 0 or 1.
    """
    shifts = torch.arange(0, WORD, bits, dtype=torch.int32)
    shape = [1, 1, 1]
    shape[dim + 1] = len(shifts)
    parts = (words.unsqueeze(dim + 1) >> shifts.view(shape)) & ((1 << bits) - 1)
    return parts.to(torch.uint8).flatten(dim, dim + 1)
