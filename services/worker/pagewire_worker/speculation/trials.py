"""Says when drafts that are not expected to pay are tried, and of which sequences.

Each step saves up a small share of its time, and a trial begins when its whole price is saved up:
unread tokens, drafts, and rows that are verified. After trials in vain the next one is later.
"""

from collections.abc import Sequence
from typing import Final

TRIAL_SHARE: Final = 0.01
"""Of the time of steps, that trials may cost."""
MOST_TRIALS: Final = 4
"""Trials that time is saved up for."""
MOST_DELAY: Final = 4
"""Of the time that a trial is saved up in, from one trial in vain to the next, at most."""

MOST_REST: Final = 8
"""Steps, at most, from one in which it is asked whether drafts pay to the next."""


class Rests:
    """Steps in which it is not asked whether drafts pay: ever more while they do not.

    To ask takes about a hundredth of a step of many sequences, and their chances change slowly.
    """

    def __init__(self) -> None:
        self._left, self._length = 0, 1

    def take(self) -> bool:
        """Return whether the step that begins is one of them."""
        self._left = max(0, self._left - 1)
        return self._left > 0

    def note(self, *, is_paying: bool) -> None:
        """Note the answer."""
        self._length = 1 if is_paying else min(MOST_REST, 2 * self._length)
        self._left = self._length

    def end(self) -> None:
        """Ask again in the next step: there is something new."""
        self._left, self._length = 0, 1


class Trials:
    """Time that is saved up for trials. All is plain numbers; times are in seconds."""

    def __init__(self) -> None:
        self._saved = float("inf")
        # Time from the last trial to the next, relative to what saving up takes; and what is left.
        self._delay = 1
        self._wait = 0.0
        self._spent = 0.0

    @property
    def saved(self) -> float:
        """Seconds that are saved up; below 0 if a trial took longer than its price."""
        return self._saved

    def save(self, seconds: float) -> None:
        """Save up the share of a step of `seconds`."""
        self._saved += TRIAL_SHARE * seconds
        self._wait -= seconds

    def spend(self, seconds: float) -> None:
        """Take what part of a trial has cost."""
        self._saved -= seconds
        self._spent += seconds

    def may_spend(self, price: float) -> bool:
        """Return whether time for a trial of `price` seconds is saved up, and no wait is left."""
        self._saved = min(self._saved, MOST_TRIALS * price)
        return self._wait <= 0.0 and price <= self._saved

    def affordable(self, shared: float, prices: Sequence[float]) -> list[int]:
        """Return the indexes of the sequences to try, ascending; those of least price go first.

        Args:
            shared: Seconds of a trial, of however many sequences.
            prices: Seconds more for each sequence, [n], at least one.
        """
        ordered = sorted(range(len(prices)), key=prices.__getitem__)
        if not self.may_spend(shared + prices[ordered[0]]):
            return []
        chosen, price = [], shared
        for index in ordered:
            price += prices[index]
            if price > self._saved:
                break
            chosen.append(index)
        return sorted(chosen)

    def note_trial(self) -> None:
        """Note that drafts were tried: the next trial is later, unless drafts are found to pay.

        The time is saved up meanwhile, for sequences get longer and have more to be read.
        """
        self._delay = min(MOST_DELAY, 2 * self._delay)
        self._wait = self._delay * self._spent / TRIAL_SHARE
        self._spent = 0.0

    def note_paying(self) -> None:
        """Note that drafts are expected to pay."""
        self._delay, self._wait, self._spent = 1, 0.0, 0.0
