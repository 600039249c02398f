"""Time of a step by its number of rows, and how many drafts are worth their time.

The curve begins with a measurement at the start of the worker and follows the steps that run. A
step that reads all weights for one row costs little more with some rows more, until arithmetic
takes longer than reading.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from pagewire_shared.kv.arrays import Int64Array

F64Array = npt.NDArray[np.float64]

WEIGHT: Final = 0.1
"""Of a new measurement in a mean."""
LEAST_GAIN: Final = 1.03
"""Tokens per second with drafts, relative to without, that drafts are worth it from."""
FIRST_PAUSE_SECONDS: Final = 0.001
MOST_PAUSE_SECONDS: Final = 0.02
"""A longer time between two steps is no wait for the next plan: nothing was to be computed."""


@dataclass(slots=True)
class StepCosts:
    """Seconds of steps by rows, as means at some numbers of rows.

    Attributes:
        rows: Numbers of rows, ascending, [points].
        means: Seconds of a step at each, [points].
        pause_seconds: Time that a worker waits for a plan with drafts, which comes after the result
            of the step before.
    """

    rows: Int64Array
    means: F64Array
    pause_seconds: float = FIRST_PAUSE_SECONDS
    _smooth: F64Array = field(init=False)

    def __post_init__(self) -> None:
        self._smooth = np.maximum.accumulate(self.means)

    @classmethod
    def of(cls, measured: Sequence[tuple[int, float]]) -> "StepCosts":
        """Return the curve through `measured` (rows, seconds), ascending, at least one."""
        rows, seconds = zip(*measured, strict=True)
        return cls(np.array(rows, dtype=np.int64), np.array(seconds, dtype=np.float64))

    def seconds(self, num_rows: Int64Array) -> F64Array:
        """Return the seconds of steps with `num_rows` [n], on lines between the points."""
        found: F64Array = np.interp(num_rows, self.rows, self._smooth)
        if len(self.rows) > 1:
            slope = (self._smooth[-1] - self._smooth[-2]) / (self.rows[-1] - self.rows[-2])
        else:
            slope = self._smooth[-1] / self.rows[-1]
        beyond: F64Array = np.maximum(0, num_rows - self.rows[-1]) * slope
        return found + beyond

    def note_step(self, num_rows: int, seconds: float) -> None:
        """Take the time of a step without prompts into the mean of the nearest points."""
        if not 0 < num_rows <= self.rows[-1]:
            return
        expected = float(self.seconds(np.array([num_rows]))[0])
        after = int(np.searchsorted(self.rows, num_rows))
        share = 1.0
        if self.rows[after] != num_rows:
            width = self.rows[after] - self.rows[after - 1]
            share = float((num_rows - self.rows[after - 1]) / width)
        # An outlier, such as a step that was interrupted, moves the mean by no more than a mean.
        change = WEIGHT * float(np.clip(seconds - expected, -expected, expected))
        self.means[after] += share * change
        if share < 1.0:
            self.means[after - 1] += (1.0 - share) * change
        self._smooth = np.maximum.accumulate(self.means)

    def note_pause(self, seconds: float) -> None:
        """Take the time between a result and the step with drafts after it into the mean."""
        if seconds < MOST_PAUSE_SECONDS:
            self.pause_seconds += WEIGHT * (max(0.0, seconds) - self.pause_seconds)

    def may_gain(self, num_rows: int, most: int) -> bool:
        """Return whether up to `most` drafts for each of `num_rows` would pay if all were right."""
        added = np.arange(1, num_rows * most + 1)
        return len(self._worth(num_rows, added, added.astype(np.float64))) > 0

    def choose(
        self, num_rows: int, chances: F64Array, lengths: Int64Array, *, is_held: bool = True
    ) -> Int64Array:
        """Return how many drafts of each sequence to verify, [sequences].

        Drafts are added in the order of their chance to be right, p ** j for the j-th draft of a
        sequence with chance p, as far as the expected tokens per second are most.

        Args:
            num_rows: Rows of the step without drafts.
            chances: Chance that a draft is right if those before it are, per sequence.
            lengths: Drafts that each sequence has.
            is_held: Whether no other step is under way. If one is, the worker waits for two plans.
        """
        owners = np.arange(len(lengths)).repeat(lengths)
        places = np.arange(len(owners)) - (np.cumsum(lengths) - lengths).repeat(lengths)
        gains = chances[owners] ** (places + 1)
        order = np.argsort(-gains, kind="stable")
        added = np.arange(1, len(order) + 1)
        num_pauses = 1 if is_held else 2
        chosen = order[: len(self._worth(num_rows, added, np.cumsum(gains[order]), num_pauses))]
        return np.bincount(owners[chosen], minlength=len(lengths)).astype(np.int64)

    def _worth(
        self, num_rows: int, added: Int64Array, gains: F64Array, num_pauses: int = 1
    ) -> Int64Array:
        """Return the part of `added` drafts, with `gains` expected tokens, that is worth it."""
        if len(added) == 0:
            return added
        before = num_rows / float(self.seconds(np.array([num_rows]))[0])
        pauses = num_pauses * self.pause_seconds
        rates = (num_rows + gains) / (self.seconds(num_rows + added) + pauses)
        best = int(rates.argmax())
        return added[: best + 1] if rates[best] > LEAST_GAIN * before else added[:0]
