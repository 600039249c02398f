"""How long a load takes by its size: a line through what was measured, the newest counting most.

Exponentially weighted least squares of seconds over bytes. The line is kept between a load that
costs the same whatever its size, and one whose every byte costs the same.
"""

from typing import Final

OVERHEAD_SECONDS: Final = 0.003
"""What a load costs besides its bytes, at least: two hops, and the wait for the model thread."""

# What a measurement counts less with each that follows it: about the last six count.
_DECAY: Final = 0.7
# Sizes that differ by less than this part of their mean say nothing of what a byte costs.
_MIN_SPREAD: Final = 0.1


class LinkSpeed:
    """Measurements of one link."""

    __slots__ = ("_weight", "_x", "_xx", "_xy", "_y")

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def is_measured(self) -> bool:
        """Whether anything was."""
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
        """Return how long `num_bytes` take, or None before anything was measured."""
        if not self.is_measured:
            return None
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        variance = self._xx / self._weight - mean_x * mean_x
        # As if it were all bytes: what one measurement alone says.
        slope = most = (mean_y - OVERHEAD_SECONDS) / mean_x
        if variance > (_MIN_SPREAD * mean_x) ** 2:
            slope = (self._xy / self._weight - mean_x * mean_y) / variance
        slope = min(max(slope, 0.0), most)
        return max(OVERHEAD_SECONDS, mean_y + slope * (num_bytes - mean_x))
