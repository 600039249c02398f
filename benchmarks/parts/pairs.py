"""The mean of ratios of pairs, and how far it is certain."""

import statistics
from collections.abc import Sequence
from typing import Final

_T_95: Final = (
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.1),
)
"""Student's t of 95 % on both sides, by degrees of freedom from 1 on; the last one for more."""


def mean_with_bound(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its 95 % bound, which is infinite for one ratio alone."""
    mean = statistics.fmean(ratios)
    if len(ratios) < 2:
        return mean, float("inf")
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return mean, _T_95[min(len(ratios) - 1, len(_T_95)) - 1] * error
