"""From products of queries and keys to powers of 2."""

import math
from dataclasses import dataclass

from pagewire_worker.backend.attention import AttentionKind

LOG2_E = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class ScoreScale:
    """What a kernel multiplies products with.

    Attributes:
        factor: Of a product; with a softcap c what is below its tanh, else in powers of 2.
        softcap: c in powers of 2; 0 without one.
    """

    factor: float
    softcap: float

    @classmethod
    def of(cls, kind: AttentionKind, head_dim: int, key_scale: float) -> "ScoreScale":
        """Return that of a kind of attention over keys stored with a scale."""
        scale = (head_dim**-0.5 if kind.scale is None else kind.scale) * key_scale
        if kind.softcap is None:
            return cls(scale * LOG2_E, 0.0)
        return cls(scale / kind.softcap, kind.softcap * LOG2_E)
