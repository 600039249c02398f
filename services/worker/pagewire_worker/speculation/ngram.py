"""The n-gram proposer: what followed the last tokens of a sequence where they occurred before.

This is prompt lookup decoding (Saxena, 2023) with the options of vLLM's `ngram` method. It keeps
nothing: every call reads the tokens of the sequence, prompt and output.
"""

from dataclasses import dataclass

import numpy as np

from pagewire_worker.speculation.proposer import NOTHING, Drafts, SequenceStart, Tokens


@dataclass(frozen=True, slots=True)
class NgramFinder:
    """Finds the most recent of the longest earlier occurrences of the last tokens.

    Args:
        shortest: Tokens that have to match at least, from 1.
        longest: Tokens that are compared at most.
    """

    shortest: int
    longest: int

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Do nothing."""

    def release(self, slot: int) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""

    def find(self, slot: int, tokens: Tokens, most: int) -> Drafts:
        """Return at most `most` drafts for the places behind `tokens` [n].

        A sequence that repeats itself goes on doing so: drafts beyond its end begin again at the
        token after the match.
        """
        end = len(tokens) - 1
        matches = np.flatnonzero(tokens[:end] == tokens[end])
        length = 1 if len(matches) else 0
        while 0 < length < self.longest:
            longer = matches[matches >= length]
            longer = longer[tokens[longer - length] == tokens[end - length]]
            if len(longer) == 0:
                break
            matches, length = longer, length + 1
        if length < self.shortest:
            return NOTHING
        period = tokens[matches[-1] + 1 :]
        found: list[int] = np.resize(period, most).tolist()
        return found
