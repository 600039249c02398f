"""Attention of prefill chunks over paged keys and values, with the arithmetic of decodes.

Each tile of query tokens goes over all splits that it sees (FlashAttention-2, Dao, 2023).
"""

import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.triton_kernels.attention_options import AttentionOptions
from pagewire_worker.triton_kernels.attention_split import (
    attend_split,
    before_positions,
    merge_split,
)
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences, SplitPlan
from pagewire_worker.triton_kernels.query_tiles import (
    QueryTiles,
    query_tile,
    tile_arguments,
)


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
    given, named = tile_arguments(query, layer, sequences, tiles, attended, kind)
    options = AttentionOptions.of(
        query.dtype, layer.cache.key.dtype, tiles.num_rows, named["WIDTH"]
    )
    _attend_tiles[(len(tiles.sequences), layer.cache.num_kv_heads)](
        *given,
        SPLIT=split_plan.split,
        TILE=split_plan.tile,
        **named,
        num_warps=options.num_warps,
        num_stages=options.num_stages,
    )


# One line per argument would hide the kernel itself. The width of a step's tables is not
# specialized: a kernel must not be compiled again while requests run.
# fmt: off
@triton.jit(do_not_specialize=["table_stride"])
def _attend_tiles(
    query, key, value, tile_sequences, tile_firsts, query_starts, seq_lens, tables, attended,
    sinks, score_scale, softcap, value_scale, table_stride, block_stride, token_stride, head_stride,
    head_dim, NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, INTERPRETED: tl.constexpr
):
    sequence, first_position, end, offsets, is_row, row_positions = query_tile(
        tile_sequences, tile_firsts, query_starts, seq_lens, head_dim, NUM_HEADS, GROUP, ROWS, WIDTH
    )
    first_visible = 0
    if WINDOW > 0:
        first_visible = tl.maximum(first_position + 1 - WINDOW, 0)
    head_begin = tl.program_id(1).to(tl.int64) * head_stride  # with heads outermost beyond 2**31
    queries = tl.load(query + offsets, mask=is_row, other=0.0)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    heads = tl.program_id(1) * GROUP + tl.arange(0, ROWS) % GROUP
    greatest, total = before_positions(sinks, heads, ROWS)
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
