"""How kernels of attention are launched. Each choice keeps them in registers, for every device that
benchmarks/gpu/compile_table compiles for."""

from dataclasses import dataclass

import torch

LEAST_ROWS = 16
"""Rows of the smallest matrix product: the query heads of a KV head fill some of them."""

WIDE_HEADS = 256


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """Of a launch.

    Attributes:
        num_warps: That share a tile; part of what fixes the order of sums.
        num_stages: Loads ahead; fixes no order.
    """

    num_warps: int
    num_stages: int

    @classmethod
    def of(
        cls, dtype: torch.dtype, cache_dtype: torch.dtype, num_rows: int, width: int
    ) -> "AttentionOptions":
        """Return those of a tile; decodes and chunks with as many rows have the same.

        Args:
            dtype: Of the queries.
            cache_dtype: Of keys and values.
            num_rows: Of the tile.
            width: Of a head, a power of 2.
        """
        if dtype != torch.float32:
            return cls(num_warps=4 if num_rows == LEAST_ROWS else 8, num_stages=3)
        is_small = num_rows == LEAST_ROWS
        if cache_dtype == dtype:
            # Without tensor cores a thread has both factors of its products beside their sums.
            num_warps = min(max(width // 16, 4), 16) if is_small else 16
            return cls(num_warps, num_stages=3)
        # Narrow numbers become wide ones in registers, which would not do for loads ahead, too.
        num_warps = 4 if is_small and width < WIDE_HEADS else 8
        return cls(num_warps, num_stages=1)
