"""The chances that drafts are right: of each sequence, as its own drafts were, and of new ones.

The first draft of a step has a chance of its own. Where a model leaves the path of its drafts, the
first one is wrong; where it follows them, nearly all are right, so one chance for all drafts would
be too low behind a first one that is right, after a few steps with bad luck.

A sequence starts with the chances that those before it had. Old drafts count less and less, by the
drafts and by the tokens behind them, since text changes.
"""

from typing import Final, NamedTuple

PRIOR_WEIGHT: Final = 2.0
"""Drafts that what was known before a sequence counts as."""
KEPT: Final = 0.8
"""Of what is known of a sequence, when more drafts are verified."""
HALF_LIFE: Final = 16
"""Tokens without drafts after which what is known of a sequence counts half."""
LEARNING: Final = 0.1
"""Of each step of a sequence, in the chances that new ones start with."""


class Chances(NamedTuple):
    """The chances of a sequence's drafts, from 0 to 1.

    Attributes:
        first: That the first draft of a step is right.
        later: That another one is right if those before it are.
    """

    first: float
    later: float


FIRST_CHANCES: Final = Chances(0.7, 0.7)
"""While nothing is known: drafts are tried."""


class SequenceChance:
    """What is known of the drafts of one sequence.

    Args:
        prior: The chances that it starts with.
    """

    __slots__ = ("_first", "_later")

    def __init__(self, prior: Chances) -> None:
        self._first, self._later = _Ratio(prior.first), _Ratio(prior.later)

    @property
    def value(self) -> Chances:
        """The chances of its next drafts."""
        return Chances(self._first.value, self._later.value)

    def note(
        self, num_drafts: int, num_right: int, prior: Chances, *, num_between: int = 0
    ) -> Chances:
        """Learn from verified drafts, at least one; return the prior of new sequences after them.

        A draft behind a wrong one was not tried. `num_between` are the tokens between the drafts
        that were verified before and these.
        """
        first = min(num_right, 1)
        kept = KEPT * 0.5 ** (num_between / HALF_LIFE)
        self._first.note(1, first, kept)
        learnt = prior.first + LEARNING * (first - prior.first), prior.later
        num_tried = min(num_right, num_drafts - 1)
        if num_tried == 0:
            return Chances(*learnt)
        self._later.note(num_tried, num_right - 1, kept)
        part = (num_right - 1) / num_tried
        return Chances(learnt[0], prior.later + LEARNING * (part - prior.later))


class _Ratio:
    """Right ones among those tried, of which old ones count less."""

    __slots__ = ("_num_right", "_num_tried")

    def __init__(self, prior: float) -> None:
        self._num_right, self._num_tried = prior * PRIOR_WEIGHT, PRIOR_WEIGHT

    @property
    def value(self) -> float:
        return self._num_right / self._num_tried

    def note(self, num_tried: int, num_right: int, kept: float) -> None:
        self._num_right = kept * self._num_right + num_right
        self._num_tried = kept * self._num_tried + num_tried
