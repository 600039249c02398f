"""Attention of prefill chunks over paged keys and values, with the arithmetic of decodes.

Each tile of query tokens goes over all splits that it sees (FlashAttention-2, Dao, 2023).
"""

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.backend.attention import AttentionKind, AttentionMetadata, Int64Array
from pagewire_worker.backend.device_copy import rows_to_device
from pagewire_worker.triton_kernels.attention_options import (
    LEAST_ROWS,
    AttentionOptions,
    ScoreScale,
)
from pagewire_worker.triton_kernels.attention_split import HIDDEN, attend_split, merge_split
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences, SplitPlan


@dataclass(frozen=True, slots=True)
class QueryTiles:
    """The tokens of chunks, cut into tiles that are computed together.

    Attributes:
        sequences: [tiles] int32, the sequence of each tile.
        firsts: [tiles] int32, its first token, counted from the start of the sequence's chunk.
        num_rows: Rows of a tile, a power of 2: tokens times query heads of a KV head, at least.
    """

    sequences: Tensor
    firsts: Tensor
    num_rows: int

    @classmethod
    def of(
        cls,
        metadata: AttentionMetadata,
        which: Int64Array,
        group: int,
        num_rows: int,
        device: torch.device,
    ) -> "QueryTiles":
        """Cut the chunks of the sequences `which` for `group` query heads per KV head.

        The last tiles of a chunk see the most positions, and come first.
        """
        num_rows = max(LEAST_ROWS, num_rows, triton.next_power_of_2(group))
        num_tokens = num_rows // group
        counts = -(-metadata.query_lens[which] // num_tokens)
        tiles = np.repeat(which, counts)
        numbers = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        both = np.stack((tiles, numbers * num_tokens)).astype(np.int32)
        order = np.argsort(-metadata.seq_lens[tiles] - numbers, kind="stable")
        sequences, firsts = rows_to_device((both[0, order], both[1, order]), device)
        return cls(sequences, firsts, num_rows)


def chunk_attention(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    tiles: QueryTiles,
    attended: Tensor,
    kind: AttentionKind,
    split_plan: SplitPlan,
) -> None:
    """Compute attention for the tokens of chunks.

    Args:
        query: [tokens, heads, head_dim], contiguous, of all sequences of the step.
        layer: Keys and values, with those of this step.
        attended: As `query`; rows of the tokens of the tiles are written.
    """
    if len(tiles.sequences) == 0:
        return
    split_plan = split_plan.fit_to(query)
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = layer.cache.num_kv_heads
    scale = ScoreScale.of(kind, head_dim, layer.key_scale)
    tables = sequences.block_tables
    width = max(16, triton.next_power_of_2(head_dim))
    options = AttentionOptions.of(query.dtype, layer.cache.key.dtype, tiles.num_rows, width)
    _attend_tiles[(len(tiles.sequences), num_kv_heads)](
        query,
        layer.cache.key,
        layer.cache.value,
        tiles.sequences,
        tiles.firsts,
        sequences.query_starts,
        sequences.seq_lens,
        tables,
        attended,
        scale.factor,
        scale.softcap,
        layer.value_scale,
        tables.stride(0),
        *layer.strides,
        head_dim,
        NUM_HEADS=num_heads,
        GROUP=num_heads // num_kv_heads,
        WINDOW=kind.window or 0,
        HAS_SOFTCAP=kind.softcap is not None,
        SPLIT=split_plan.split,
        TILE=split_plan.tile,
        BLOCK_SIZE=layer.cache.block_size,
        ROWS=tiles.num_rows,
        WIDTH=width,
        INTERPRETED=INTERPRETED,
        num_warps=options.num_warps,
        num_stages=options.num_stages,
    )


# One line per argument would hide the kernel itself. The width of a step's tables is not
# specialized: a kernel must not be compiled again while requests run.
# fmt: off
@triton.jit(do_not_specialize=["table_stride"])
def _attend_tiles(
    query, key, value, tile_sequences, tile_firsts, query_starts, seq_lens, tables, attended,
    score_scale, softcap, value_scale, table_stride, block_stride, token_stride, head_stride,
    head_dim, NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, INTERPRETED: tl.constexpr
):
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    sequence, first = tl.load(tile_sequences + tile), tl.load(tile_firsts + tile)
    query_start = tl.load(query_starts + sequence)
    query_len = tl.load(query_starts + sequence + 1) - query_start
    seq_len = tl.load(seq_lens + sequence)
    num_tokens = tl.minimum(ROWS // GROUP, query_len - first)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    is_row = (rows[:, None] // GROUP < num_tokens) & (columns[None, :] < head_dim)
    first_position = seq_len - query_len + first
    row_positions = first_position + rows // GROUP
    end = first_position + num_tokens
    first_visible = 0
    if WINDOW > 0:
        first_visible = tl.maximum(first_position + 1 - WINDOW, 0)
    tokens = (query_start + first).to(tl.int64) + rows // GROUP
    heads = kv_head * GROUP + rows % GROUP
    head_begin = kv_head.to(tl.int64) * head_stride  # with heads outermost it may pass 2**31
    offsets = (tokens * NUM_HEADS + heads)[:, None] * head_dim + columns[None, :]
    queries = tl.load(query + offsets, mask=is_row, other=0.0)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    greatest = tl.full([ROWS], HIDDEN, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for split_begin in range(first_visible // SPLIT * SPLIT, end, SPLIT):
        split_sums, split_greatest, split_total = attend_split(
            queries, key + head_begin, value + head_begin,
            tables + sequence.to(tl.int64) * table_stride, row_positions, first_visible, end,
            split_begin, score_scale, softcap, block_stride, token_stride, head_dim, WINDOW,
            HAS_SOFTCAP, SPLIT, TILE, BLOCK_SIZE, ROWS, WIDTH, INTERPRETED
        )
        sums, greatest, total = merge_split(
            sums, greatest, total, split_sums, split_greatest, split_total
        )
    result = sums / tl.broadcast_to(total[:, None], [ROWS, WIDTH]) * value_scale
    tl.store(attended + offsets, result.to(attended.dtype.element_ty), mask=is_row)
