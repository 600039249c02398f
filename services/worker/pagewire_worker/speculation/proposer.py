"""Interface of proposers: they guess the next tokens of a sequence."""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import Int64Array

Tokens = npt.NDArray[np.int32]
"""The tokens of one sequence, prompt and output, [n]; a view that must not be written or kept."""

Drafts = Int64Array
"""Guessed tokens for the places behind a sequence, [n]."""

NOTHING: Final[Drafts] = np.zeros(0, dtype=np.int64)


class DraftProposer(Protocol):
    """Guesses tokens. A wrong guess costs time and changes no output."""

    def propose(self, tokens: Tokens, most: int) -> Drafts:
        """Return at most `most` drafts for the places behind `tokens` [n], n at least 1."""
        ...
