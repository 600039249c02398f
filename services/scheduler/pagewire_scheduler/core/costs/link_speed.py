"""Predicts the duration of a load from its size: a line through the measurements, the newest
weighted most.

The method is exponentially weighted least squares of seconds over bytes. The slope is kept between
two extremes: a load costs the same at any size, or every byte costs the same.
"""

from typing import Final

OVERHEAD_SECONDS: Final = 0.003
"""Least cost of a load besides its bytes: two hops, and the wait for the model thread."""

# Factor of a measurement's weight with each later one: about the last six count.
_DECAY: Final = 0.7
# Sizes that differ by less than this part of their mean do not show the cost of a byte.
_MIN_SPREAD: Final = 0.1


class LinkSpeed:
    """Measurements of one link."""

    __slots__ = ("_weight", "_x", "_xx", "_xy", "_y")

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether there is a measurement."""
        return self._weight > 0

    def note(self, num_bytes: int, seconds: float) -> None:
        """Take one measurement; both must be above 0."""
        x, y = float(num_bytes), max(seconds, OVERHEAD_SECONDS)
        self._weight = self._weight * _DECAY + 1
        self._x = self._x * _DECAY + x
        self._y = self._y * _DECAY + y
        self._xx = self._xx * _DECAY + x * x
        self._xy = self._xy * _DECAY + x * y

    def seconds(self, num_bytes: int) -> float | None:
        """Return the seconds that `num_bytes` take, or None before a measurement."""
        if not self.is_measured:
            return None
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        variance = self._xx / self._weight - mean_x * mean_x
        # As if every byte cost the same: the best guess from a single size.
        slope = most = (mean_y - OVERHEAD_SECONDS) / mean_x
        if variance > (_MIN_SPREAD * mean_x) ** 2:
            slope = (self._xy / self._weight - mean_x * mean_y) / variance
        slope = min(max(slope, 0.0), most)
        return max(OVERHEAD_SECONDS, mean_y + slope * (num_bytes - mean_x))
