"""Selects launch options of attention kernels.

With each choice the kernels fit in registers, on every device that benchmarks/gpu/compile_table
compiles for.
"""

import math
from dataclasses import dataclass

import torch

from pagewire_worker.backend.attention import AttentionKind

LEAST_ROWS = 16
"""Rows of the smallest matrix product; the query heads of a KV head fill some of them."""

WIDE_HEADS = 256


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Options of one launch.

    Attributes:
        num_warps: Warps that share a tile; they affect the order of sums.
        num_stages: Loads ahead; they do not affect the order of sums.
    """

    num_warps: int
    num_stages: int

    @classmethod
    def of(
        cls, dtype: torch.dtype, cache_dtype: torch.dtype, num_rows: int, width: int
    ) -> "AttentionOptions":
        """Return the options of a tile; decodes and chunks with as many rows get the same.

        Args:
            width: Width of a head, a power of 2.
        """
        if dtype != torch.float32:
            return cls(num_warps=4 if num_rows == LEAST_ROWS else 8, num_stages=3)
        is_small = num_rows == LEAST_ROWS
        if cache_dtype == dtype:
            # Without tensor cores a thread holds both factors of its products and the sums.
            num_warps = min(max(width // 16, 4), 16) if is_small else 16
            return cls(num_warps, num_stages=3)
        # Narrow numbers are widened in registers, which leaves no registers for loads ahead.
        num_warps = 4 if is_small and width < WIDE_HEADS else 8
        return cls(num_warps, num_stages=1)


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
