"""Learns the chances that drafts are right: of each sequence from its own drafts, and of new ones.

The first draft of a step has a chance of its own. A model that leaves the path of its drafts makes
the first one wrong; one that follows them makes nearly all right. So one chance for all drafts
would be too low behind a first one that is right, after a few steps with bad luck.

A sequence starts with the chances that those before it had. Its last drafts count most, since text
changes. While it has none, what they said is forgotten, and what all of its drafts said is left: a
few wrong ones end drafts for a while, and many do for good.
"""

from typing import Final, NamedTuple

PRIOR_WEIGHT: Final = 2.0
"""Drafts that what was known before a sequence counts as."""
LONG_WEIGHT: Final = 3.0
"""Drafts that what all of a sequence said counts as, beside the last ones."""
KEPT: Final = 0.85
"""Of what the last drafts said, when more are verified."""
LONG_KEPT: Final = 0.97
"""Of what all drafts of a sequence said, when more are verified."""
HALF_LIFE: Final = 16
"""Tokens without drafts after which what the last ones said counts half."""
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
        self._first, self._later = _Chance(prior.first), _Chance(prior.later)

    def value(self, num_since: int = 0) -> Chances:
        """Return the chances, `num_since` tokens behind the last drafts that were verified."""
        kept = 0.5 ** (num_since / HALF_LIFE)
        return Chances(self._first.value(kept), self._later.value(kept))

    def note(
        self, num_drafts: int, num_right: int, prior: Chances, *, num_since: int = 0
    ) -> Chances:
        """Learn from verified drafts, at least one; return the prior of new sequences after them.

        A draft behind a wrong one was not tried. `num_since` is as above, before these.
        """
        first = min(num_right, 1)
        kept = KEPT * 0.5 ** (num_since / HALF_LIFE)
        self._first.note(1, first, kept)
        learnt = prior.first + LEARNING * (first - prior.first)
        num_tried = min(num_right, num_drafts - 1)
        if num_tried == 0:
            return Chances(learnt, prior.later)
        self._later.note(num_tried, num_right - 1, kept)
        part = (num_right - 1) / num_tried
        return Chances(learnt, prior.later + LEARNING * (part - prior.later))


class _Chance:
    """Right ones among those tried: of the last ones, and of all."""

    __slots__ = ("_all_right", "_all_tried", "_num_right", "_num_tried")

    def __init__(self, prior: float) -> None:
        self._num_right = self._num_tried = 0.0
        self._all_right, self._all_tried = prior * PRIOR_WEIGHT, PRIOR_WEIGHT

    def value(self, kept: float) -> float:
        """Return the chance, with `kept` of the last ones."""
        right = kept * self._num_right + LONG_WEIGHT * self._all_right / self._all_tried
        return right / (kept * self._num_tried + LONG_WEIGHT)

    def note(self, num_tried: int, num_right: int, kept: float) -> None:
        self._num_right = kept * self._num_right + num_right
        self._num_tried = kept * self._num_tried + num_tried
        self._all_right = LONG_KEPT * self._all_right + num_right
        self._all_tried = LONG_KEPT * self._all_tried + num_tried
