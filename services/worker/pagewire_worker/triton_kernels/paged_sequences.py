"""Describes the sequences of a step on the device, and the cut of their positions for attention."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pagewire_worker.backend.attention import AttentionMetadata, Int64Array
from pagewire_worker.backend.device_copy import to_device
from pagewire_worker.kv.kv_cache import LayerCache
from pagewire_worker.triton_kernels.attention_options import LEAST_ROWS

TILE_BYTES = 32 * 1024
"""Bytes of the keys of a tile. Values take as many, queries half as many. Together they fit in the
99 KiB of shared memory that every device since compute capability 8.0 has."""

QUERY_BYTES = TILE_BYTES // 2


FREE_SPLITS: tuple[tuple[int | None, int], ...] = ((8, 256), (None, 512))
"""Most decodes of a batch, and the positions of their splits. Few decodes need many splits to fill
a device; with many, long splits keep loads under way: on an H200 5 to 7% faster than 256."""


@dataclass(frozen=True, slots=True)
class PagedSequences:
    """The small arrays of AttentionMetadata on the device, all int32.

    Attributes:
        query_starts: [num_seqs + 1].
        seq_lens: [num_seqs].
        block_tables: [num_seqs, max_blocks].
    """

    query_starts: Tensor
    seq_lens: Tensor
    block_tables: Tensor

    @classmethod
    def of(cls, metadata: AttentionMetadata, device: torch.device) -> "PagedSequences":
        """Copy `metadata` to a device."""

        def moved(array: Int64Array) -> Tensor:
            return to_device(array.astype(np.int32), device)

        resident = metadata.resident
        if resident is None:
            tables = moved(metadata.block_tables)
        else:
            tables = resident.select(metadata.block_tables.shape[1])
        return cls(moved(metadata.query_starts), moved(metadata.seq_lens), tables)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """How the positions of a sequence are cut; part of what fixes the bits of a result.

    Positions are cut into splits of fixed size, at its multiples, whatever else is in the batch.
    Within a split tiles follow each other as in online softmax (Milakov and Gimelshein, 2018;
    FlashAttention, Dao et al., 2022), and splits are merged in ascending order. Hidden positions
    add exact zeros, so other rows of a tile do not matter.

    Attributes:
        split: Positions of a split, a multiple of `tile`.
        tile: Positions that are multiplied at a time, a power of 2, at least 16.
    """

    split: int = 256
    tile: int = 64

    def __post_init__(self) -> None:
        assert self.tile >= 16
        assert self.tile & (self.tile - 1) == 0
        assert self.split % self.tile == 0

    def fit_to(self, query: Tensor) -> "SplitPlan":
        """Return the plan for `query` [tokens, heads, head_dim]: wide heads have small tiles."""
        return replace(self, tile=min(self.tile, max(16, TILE_BYTES // _row_bytes(query))))

    def of_batch(self, num_decodes: int) -> "SplitPlan":
        """Return the plan of so many decodes where no bit is promised: FREE_SPLITS."""
        split = next(split for most, split in FREE_SPLITS if most is None or num_decodes <= most)
        return replace(self, split=max(split, self.tile))

    def num_splits(self, num_positions: int) -> int:
        """Return the number of splits of `num_positions` positions."""
        return -(-num_positions // self.split)

    def seen_splits(self, seq_lens: Int64Array, window: int | None) -> Int64Array:
        """Return how many splits the last token of each sequence sees, [num_seqs]."""
        first = 0 if window is None else np.maximum(seq_lens - window, 0) // self.split
        seen: Int64Array = -(-seq_lens // self.split) - first
        return seen


@dataclass(frozen=True, slots=True)
class PagedLayer:
    """Keys and values of one layer, of the type of the queries or of 8-bit floats.

    Attributes:
        cache: Views of [num_blocks, block_size, kv_heads, head_dim] with equal strides, the last
            of which is 1.
        key_scale, value_scale: Factors of stored numbers; 1 unless they have 8 bits.
        sinks: Those of the heads of queries, float32 [heads]; None for none.
    """

    cache: LayerCache
    key_scale: float = 1.0
    value_scale: float = 1.0
    sinks: Tensor | None = None

    @classmethod
    def of(cls, cache: LayerCache, sinks: Tensor | None) -> "PagedLayer":
        """Return the layer of a cache with its scales, if it has some."""
        scales = cache.scales
        if scales is None:
            return cls(cache, sinks=sinks)
        return cls(cache, scales.key, scales.value, sinks)

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements from one block, token and head to the next."""
        key, value = self.cache.key, self.cache.value
        assert key.stride() == value.stride()
        assert key.stride(3) == 1
        return key.stride(0), key.stride(1), key.stride(2)


def fit_rows(num_rows: int, query: Tensor) -> int:
    """Return how many rows of `query` [tokens, heads, head_dim] a tile has, at most `num_rows`."""
    return min(num_rows, max(LEAST_ROWS, QUERY_BYTES // _row_bytes(query)))


def _row_bytes(query: Tensor) -> int:
    """Return the bytes of a head in a tile, with its length rounded up to a power of 2."""
    return (1 << (query.shape[2] - 1).bit_length()) * query.itemsize
