"""Time of a step by its number of rows, and how many drafts are worth their time.

The curve begins with a measurement at the start of the worker and follows the steps that run. A
step that reads all weights for one row costs little more with some rows more, until arithmetic
takes longer than reading. Beside the model, steps with drafts take longer than others: one waits
for its plan, which is made after the result before it.

All is plain numbers: a decision takes some microseconds, and is part of every step.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from pagewire_worker.speculation.chances import Chances

WEIGHT: Final = 0.1
"""Of a new measurement in a mean."""
FEW: Final = 8
"""Measurements that may all be outliers."""
LEAST_GAIN: Final = 1.02
"""Tokens per second with drafts, relative to without, that drafts are worth it from."""
ENTRY_PAUSES: Final = 1.5
"""Waits for plans of the first step with drafts. One is lost with the step under way, and half of
it is counted: it pays for the steps after it, too."""
FIRST_PAUSE_SECONDS: Final = 0.001
MOST_PAUSE_SECONDS: Final = 0.02
"""A longer time between two steps is no wait for the next plan: nothing was to be computed."""
STEPS_PER_TABLE: Final = 16
"""Measurements that change the table at a time."""


@dataclass(slots=True)
class _Mean:
    seconds: float
    num_measured: int = 0

    def note(self, seconds: float) -> None:
        self.num_measured += 1
        change = max(WEIGHT, 1.0 / self.num_measured) * (seconds - self.seconds)
        # An outlier, such as a step that was interrupted, moves it by no more than a mean.
        self.seconds += change if self.num_measured <= FEW else min(change, WEIGHT * self.seconds)


class StepCosts:
    """Seconds of steps by rows.

    Args:
        measured: Rows and seconds of steps, rows ascending, at least one. The seconds are those of
            the model alone.
    """

    def __init__(self, measured: Sequence[tuple[int, float]]) -> None:
        self._rows = [rows for rows, _ in measured]
        self._means = [seconds for _, seconds in measured]
        self._beside_plain = _Mean(0.0)
        self._beside_drafts = _Mean(FIRST_PAUSE_SECONDS)
        self._num_noted = 0
        self._ideals: dict[tuple[int, int], bool] = {}
        self._table, self._slope = self._tabled()

    def seconds(self, num_rows: int) -> float:
        """Return the seconds of the model with `num_rows`, on lines between the points."""
        beyond = num_rows - len(self._table) + 1
        return self._table[num_rows] if beyond <= 0 else self._table[-1] + beyond * self._slope

    @property
    def pause_seconds(self) -> float:
        """Seconds that a step with drafts waits for its plan, which other steps do not."""
        return max(0.0, self._beside_drafts.seconds - self._beside_plain.seconds)

    def note_step(self, num_rows: int, seconds: float) -> None:
        """Take the time of the model in a step without prompts into the nearest points."""
        rows, means = self._rows, self._means
        if not 0 < num_rows <= rows[-1]:
            return
        expected = self._table[num_rows]
        # An outlier, such as a step that was interrupted, moves the mean by no more than a mean.
        change = WEIGHT * min(max(seconds - expected, -expected), expected)
        after = bisect_left(rows, num_rows)
        share = 1.0
        if after and rows[after] != num_rows:
            share = (num_rows - rows[after - 1]) / (rows[after] - rows[after - 1])
            means[after - 1] += (1.0 - share) * change
        means[after] += share * change
        self._num_noted += 1
        if self._num_noted % STEPS_PER_TABLE == 0:
            self._table, self._slope = self._tabled()
            self._ideals.clear()

    def note_beside(self, seconds: float, *, has_drafts: bool, is_most: bool = False) -> None:
        """Take the time from the end of a step to that of the next, without that of its model.

        With `is_most`, it would have been that or less without the drafts that were computed.
        """
        if 0.0 <= seconds < MOST_PAUSE_SECONDS:
            mean = self._beside_drafts if has_drafts else self._beside_plain
            if not is_most or seconds < mean.seconds:
                mean.note(seconds)

    def may_gain(self, num_rows: int, most: int) -> bool:
        """Return whether up to `most` drafts for each of `num_rows` would pay if all were right."""
        key = num_rows, most
        if key not in self._ideals:
            if len(self._ideals) >= MOST_IDEALS:
                self._ideals.clear()
            self._ideals[key] = any(self.choose(num_rows, [SURE] * num_rows, [most] * num_rows))
        return self._ideals[key]

    def choose(
        self,
        num_rows: int,
        chances: Sequence[Chances],
        lengths: Sequence[int],
        *,
        is_held: bool = True,
        draft_seconds: float = 0.0,
        follow_seconds: float = 0.0,
    ) -> list[int]:
        """Return how many drafts of each sequence to verify, [sequences].

        Drafts are added in the order of their chance to be right, first * later ** j for the draft
        behind j others of a sequence, as far as the expected tokens per second are most.

        Args:
            num_rows: Rows of the step without drafts.
            chances: Those of each sequence, [sequences].
            lengths: Drafts that each sequence has.
            is_held: Whether no other step is under way. If one is, the worker waits longer.
            draft_seconds: Time to compute one more draft of all sequences, while the plan is waited
                for.
            follow_seconds: Time that having drafts takes in each step, however many.
        """
        gains: list[tuple[float, int]] = []
        for index, (chance, length) in enumerate(zip(chances, lengths, strict=True)):
            gain = chance.first
            for _ in range(length):
                gains.append((gain, index))
                gain *= chance.later
        gains.sort(reverse=True)
        beside = self._beside_plain.seconds
        best_rate = LEAST_GAIN * num_rows / (self.seconds(num_rows) + beside)
        beside += (1.0 if is_held else ENTRY_PAUSES) * self.pause_seconds
        counts = [0] * len(lengths)
        best, num_tokens, deepest = counts.copy(), float(num_rows), 0
        for added, (gain, index) in enumerate(gains, 1):
            num_tokens += gain
            counts[index] += 1
            deepest = max(deepest, counts[index])
            seconds = self.seconds(num_rows + added) + follow_seconds
            rate = num_tokens / (seconds + max(beside, draft_seconds * deepest))
            if rate > best_rate:
                best, best_rate = counts.copy(), rate
        return best

    def price(self, num_rows: int, num_drafts: int) -> float:
        """Return the seconds that a step of `num_rows` takes longer with wrong drafts."""
        more = self.seconds(num_rows + num_drafts) - self.seconds(num_rows)
        return more + ENTRY_PAUSES * self.pause_seconds

    def _tabled(self) -> tuple[list[float], float]:
        """Return the seconds by rows, never falling, and those of a row behind the last one."""
        rows, means = self._rows, list(accumulate(self._means, max))
        table = [means[0]] * (rows[0] + 1)
        for (begin, low), (end, high) in pairwise(zip(rows, means, strict=True)):
            step = (high - low) / (end - begin)
            table += [low + step * count for count in range(1, end - begin + 1)]
        slope = means[-1] / rows[-1] if len(rows) == 1 else table[-1] - table[-2]
        return table, slope


SURE: Final = Chances(1.0, 1.0)
MOST_IDEALS: Final = 1024
"""Answers of `may_gain` that are kept."""
