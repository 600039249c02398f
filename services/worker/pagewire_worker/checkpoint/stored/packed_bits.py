"""Unpacks small integers from 32-bit words.

numpy computes them: torch's threads wait for each other, and where other work takes a core they
take twenty times as long.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

WORD = 32
"""Bits of a word."""

_SPREAD = {4: ((4, 0x0F0F),), 2: ((4, 0x0F0F), (6, 0x0303))}
"""Shifts and masks that move the two halves of a byte into bytes of their own."""


def unpacked(words: Tensor, bits: int) -> Tensor:
    """Return the integers of each row, uint8 [rows, words * bits of a word / bits].

    The lowest bits of a word are the first integer.

    Args:
        words: int32 or uint8 [rows, words].
        bits: 2, 4 or 8.
    """
    # The lowest byte of a word is the first in memory.
    values = np.ascontiguousarray(words.numpy()).view(np.uint8)
    for shift, mask in _SPREAD.get(bits, ()):
        wide = values.astype(np.uint16)
        wide |= wide << shift
        wide &= mask
        values = wide.view(np.uint8)
    # A copy, if there was nothing to compute: the words lie in the mapped file.
    return torch.from_numpy(values if bits < 8 else values.copy())


def unpacked_columns(words: Tensor, bits: int, order: Sequence[int] | None = None) -> Tensor:
    """Return the integers of words that hold rows: uint8 [rows * 32 / bits, columns].

    Args:
        words: int32 [rows, columns].
        bits: 2, 4 or 8.
        order: The row of a word's integers, the lowest bits first; by default in order.
    """
    num, values = WORD // bits, np.ascontiguousarray(words.numpy())
    result = np.empty((len(words), num, words.shape[1]), dtype=np.uint8)
    for place, row in enumerate(order or range(num)):
        result[:, row] = (values >> (place * bits)) & ((1 << bits) - 1)
    return torch.from_numpy(result).flatten(0, 1)
