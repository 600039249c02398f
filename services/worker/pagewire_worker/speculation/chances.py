"""The chance that a draft is right: of each sequence, as its own drafts were, and of new ones.

A sequence starts with the chance that those before it had. Old drafts count less and less, since
text changes.
"""

from typing import Final

FIRST_CHANCE: Final = 0.7
"""Chance that a draft is right, while nothing is known: it is tried."""
PRIOR_WEIGHT: Final = 2.0
"""Drafts that what was known before a sequence counts as."""
KEPT: Final = 0.75
"""Of what is known of a sequence, when more drafts are verified."""
LEARNING: Final = 0.1
"""Of each step of a sequence, in the chance that new ones start with."""


class SequenceChance:
    """What is known of the drafts of one sequence.

    Args:
        prior: The chance that it starts with.
    """

    __slots__ = ("_num_right", "_num_tried")

    def __init__(self, prior: float) -> None:
        self._num_right, self._num_tried = prior * PRIOR_WEIGHT, PRIOR_WEIGHT

    @property
    def value(self) -> float:
        """The chance that a draft is right if those before it are."""
        return self._num_right / self._num_tried

    def note(self, num_drafts: int, num_right: int) -> float:
        """Learn from verified drafts, at least one; return the part of those tried that was right.

        A draft behind a wrong one was not tried.
        """
        num_tried = min(num_right + 1, num_drafts)
        self._num_right = KEPT * self._num_right + num_right
        self._num_tried = KEPT * self._num_tried + num_tried
        return num_right / num_tried
