"""Scales products of queries and keys to scores that are powers of 2."""

import math
from dataclasses import dataclass

from pagewire_worker.backend.attention import AttentionKind

LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """Factors for the products of queries and keys.

    Attributes:
        factor: Factor of a product: inside the tanh with a softcap, else for powers of 2.
        softcap: The softcap c for powers of 2; 0 without a softcap.
    """

    factor: float
    softcap: float

    @classmethod
    def of(cls, kind: AttentionKind, head_dim: int, key_scale: float) -> "ScoreScale":
        """Return the scale for a kind of attention over keys that are stored with a scale."""
        scale = (head_dim**-0.5 if kind.scale is None else kind.scale) * key_scale
        if kind.softcap is None:
            return cls(scale * LOG2_E, 0.0)
        return cls(scale / kind.softcap, kind.softcap * LOG2_E)
