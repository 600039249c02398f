"""Philox4x32-10 in torch integer operations.

Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2, 3".
A counter-based generator keeps no state. The noise of a token depends on its request's seed and on
its position, never on the batch, the step or the device.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF

Words = tuple[Tensor, Tensor, Tensor, Tensor]


def philox4x32(counter: Sequence[Tensor], key: Sequence[Tensor]) -> Words:
    """Return four random words per counter.

    Args:
        counter: Four int64 tensors of one broadcast shape with values in [0, 2**32).
        key: Two such tensors.

    Returns:
        Four int64 tensors with values in [0, 2**32).
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        # The product wraps around in int64; its 64 bits are right, and so are both halves.
        product0, product1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((product1 >> 32) & WORD) ^ c1 ^ k0,
            product1 & WORD,
            ((product0 >> 32) & WORD) ^ c3 ^ k1,
            product0 & WORD,
        )
        k0, k1 = (k0 + WEYL[0]) & WORD, (k1 + WEYL[1]) & WORD
    return c0, c1, c2, c3


def uniform(words: Tensor) -> Tensor:
    """Return ((x >> 9) + 0.5) * 2**-23, exact in float32 and never 0 or 1.

    The usual 24-bit form rounds its largest value to 1, whose noise is infinite.
    """
    return ((words >> 9).to(torch.float32) + 0.5) * 2.0**-23


def gumbel(words: Tensor) -> Tensor:
    """Return -log(-log(u)) in float32.

    Computed in float64 and rounded: near zero the log of a rounded log has few right digits.
    """
    return -torch.log(-torch.log(uniform(words).double())).to(torch.float32)


MAX_GUMBEL = 16.6356
"""No noise is larger: -log(-log(1 - 2**-24)), rounded up."""
