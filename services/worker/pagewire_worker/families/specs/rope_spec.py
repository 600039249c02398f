"""A rotary embedding as data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeSpec:
    """Rotary embedding (Su et al., 2021).

    Attributes:
        settings: Further numbers of the type, with the names that config.json has for them.
        rotary_dim: Dimensions of a head that are rotated, the first ones; the rest stays.
        is_interleaved: Dimension 2i is paired with 2i + 1, and not i with i + rotary_dim / 2.
        max_positions: Longest context.
        rounds_late: Tables are float32, and only the rotated values are rounded.
        query_growth: (b, n) of 1 + b ln(1 + floor(position / n)), by which rotated queries are
            multiplied, as in Llama 4; None for 1.
    """

    head_dim: int
    rotary_dim: int
    max_positions: int
    theta: float = 10000.0
    rope_type: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_interleaved: bool = False
    rounds_late: bool = False
    query_growth: tuple[float, float] | None = None

    @property
    def first_context(self) -> int | None:
        """Positions within which frequencies are other ones than in a longer context.

        None where they are the same in any. The choice is made once for all positions: keys that
        are in the cache have been rotated.
        """
        if self.rope_type != "longrope":
            return None
        return int(self.settings["original_max_position_embeddings"])

    @property
    def head_order(self) -> tuple[int, ...] | None:
        """The published place of each dimension of a head, as backends order them.

        Backends rotate all pairs of i and i + head_dim / 2, some of them by nothing. Queries and
        keys are in the same order, so their products stay. None: the order is the published one.
        """
        rotated, whole = self.rotary_dim, self.head_dim
        if rotated == whole and not self.is_interleaved:
            return None
        step, distance = (2, 1) if self.is_interleaved else (1, rotated // 2)
        firsts = [pair * step for pair in range(rotated // 2)]
        seconds = [first + distance for first in firsts]
        middle = (rotated + whole) // 2
        return (*firsts, *range(rotated, middle), *seconds, *range(middle, whole))


def yarn_scale(factor: float, multiplier: float) -> float:
    """Return the growth of queries and keys for a context `factor` times as long."""
    return 0.1 * multiplier * math.log(factor) + 1.0 if factor > 1 else 1.0
