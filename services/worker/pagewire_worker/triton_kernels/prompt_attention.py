"""Attention of prefill chunks where no bit is promised: one pass over all positions.

FlashAttention-2 (Dao, 2023) over paged keys and values. Tiles that every row sees need no mask.
Sums stay in the accumulators of the tensor cores from tile to tile. Attention in splits, with the
arithmetic of decodes, allows neither.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.triton_kernels.attention_split import (
    HIDDEN,
    before_positions,
    capped,
    product,
    seen_by,
)
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences
from pagewire_worker.triton_kernels.query_tiles import (
    QueryTiles,
    query_tile,
    tile_arguments,
)

WIDEST_HEAD = 128
"""Wider heads do not fit in the registers of such tiles."""


@dataclass(frozen=True, slots=True)
class PromptTiles:
    """How a chunk is cut.

    Attributes:
        rows: Rows of a tile: tokens times query heads of a KV head.
        positions: Positions that are multiplied at a time.
    """

    rows: int = 128
    positions: int = 64
    num_warps: int = 8
    num_stages: int = 3


PROMPT_TILES = PromptTiles()


def fits(query: Tensor, layer: PagedLayer) -> bool:
    """Return whether the kernel takes queries [tokens, heads, head_dim] and such a cache.

    It needs tensor cores, so float32 and a cache of another type go in splits, and so do latents.
    """
    is_narrow = query.dtype in (torch.float16, torch.bfloat16) and query.shape[2] <= WIDEST_HEAD
    is_plain = layer.cache.key.dtype == query.dtype and not layer.cache.is_latent
    return is_narrow and is_plain


def prompt_attention(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    tiles: QueryTiles,
    attended: Tensor,
    kind: AttentionKind,
    cut: PromptTiles = PROMPT_TILES,
) -> None:
    """Compute attention for the tokens of chunks.

    Args:
        query: [tokens, heads, head_dim], contiguous, of all sequences of the step.
        layer: Keys and values, with those of this step.
        tiles: Of `cut.rows` rows.
        attended: As `query`; rows of the tokens of the tiles are written.
    """
    if len(tiles.sequences) == 0:
        return
    given, named = tile_arguments(query, layer, sequences, tiles, attended, kind)
    _attend_prompts[(len(tiles.sequences), layer.cache.num_kv_heads)](
        *given,
        TILE=cut.positions,
        IS_WHOLE=named["WIDTH"] == query.shape[2],
        **named,
        num_warps=cut.num_warps,
        num_stages=cut.num_stages,
    )


# One line per argument would hide the kernel itself. The width of a step's tables is not
# specialized: a kernel must not be compiled again while requests run.
# fmt: off
@triton.jit(do_not_specialize=["table_stride"])
def _attend_prompts(
    query, key, value, tile_sequences, tile_firsts, query_starts, seq_lens, tables, attended,
    sinks, score_scale, softcap, value_scale, table_stride, block_stride, token_stride, head_stride,
    head_dim, NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, WINDOW: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr,
    WIDTH: tl.constexpr, IS_WHOLE: tl.constexpr, INTERPRETED: tl.constexpr
):
    sequence, first_position, end, offsets, is_row, row_positions = query_tile(
        tile_sequences, tile_firsts, query_starts, seq_lens, head_dim, NUM_HEADS, GROUP, ROWS, WIDTH
    )
    head_begin = tl.program_id(1).to(tl.int64) * head_stride  # with heads outermost beyond 2**31
    key, value = key + head_begin, value + head_begin
    table = tables + sequence.to(tl.int64) * table_stride
    queries = tl.load(query + offsets, mask=is_row, other=0.0)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    heads = tl.program_id(1) * GROUP + tl.arange(0, ROWS) % GROUP
    greatest, total = before_positions(sinks, heads, ROWS)
    first_visible = 0
    if WINDOW > 0:
        first_visible = tl.maximum(first_position + 1 - WINDOW, 0)
        begin = first_visible // TILE * TILE
    else:
        # What the first row sees, all rows see.
        begin = (first_position + 1) // TILE * TILE
        sums, greatest, total = _over_tiles(
            sums, greatest, total, queries, key, value, table, row_positions, 0, begin, 0,
            end, score_scale, softcap, block_stride, token_stride, head_dim, WINDOW, HAS_SOFTCAP,
            TILE, BLOCK_SIZE, WIDTH, IS_WHOLE, INTERPRETED, False
        )
    sums, greatest, total = _over_tiles(
        sums, greatest, total, queries, key, value, table, row_positions, begin, end,
        first_visible, end, score_scale, softcap, block_stride, token_stride, head_dim, WINDOW,
        HAS_SOFTCAP, TILE, BLOCK_SIZE, WIDTH, IS_WHOLE, INTERPRETED, True
    )
    result = sums / total[:, None] * value_scale
    tl.store(attended + offsets, result.to(attended.dtype.element_ty), mask=is_row)


@triton.jit
def _over_tiles(
    sums, greatest, total, queries, key, value, table, row_positions, begin, stop,
    first_visible, end, score_scale, softcap, block_stride, token_stride, head_dim,
    WINDOW: tl.constexpr, HAS_SOFTCAP: tl.constexpr, TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    WIDTH: tl.constexpr, IS_WHOLE: tl.constexpr, INTERPRETED: tl.constexpr, IS_MASKED: tl.constexpr
):
    """Attend to the positions from `begin` to `stop`; scores are powers of 2.

    Without a mask every row sees all of them, with one only those from `first_visible` to `end`
    are read.
    """
    columns = tl.arange(0, WIDTH)
    for tile_begin in range(begin, stop, TILE):
        positions = tile_begin + tl.arange(0, TILE)
        is_there = (positions >= first_visible) & (positions < end)
        if IS_MASKED or not IS_WHOLE:
            # Other blocks may belong to other sequences or be unwritten: they must add nothing.
            blocks = tl.load(table + positions // BLOCK_SIZE, mask=is_there, other=0)
        else:
            blocks = tl.load(table + positions // BLOCK_SIZE)
        inside = (positions % BLOCK_SIZE).to(tl.int64) * token_stride
        places = blocks.to(tl.int64) * block_stride + inside
        offsets = places[:, None] + columns[None, :]
        if IS_MASKED or not IS_WHOLE:
            is_read = is_there[:, None] & (columns < head_dim)[None, :]
            keys = tl.load(key + offsets, mask=is_read, other=0.0)
            values = tl.load(value + offsets, mask=is_read, other=0.0)
        else:
            keys, values = tl.load(key + offsets), tl.load(value + offsets)
        scores = product(queries, tl.trans(keys), INTERPRETED) * score_scale
        if HAS_SOFTCAP:
            scores = capped(scores, softcap)
        if IS_MASKED:
            is_seen = seen_by(row_positions, positions, is_there, WINDOW)
            scores = tl.where(is_seen, scores, HIDDEN)
        highest = tl.maximum(greatest, tl.max(scores, axis=1))
        factor = tl.exp2(greatest - highest)
        weights = tl.exp2(scores - highest[:, None])
        total = total * factor + tl.sum(weights, axis=1)
        sums = sums * factor[:, None]
        narrow = weights.to(queries.dtype)
        if INTERPRETED:
            sums += tl.dot(narrow.to(tl.float32), values.to(tl.float32))
        else:
            sums = tl.dot(narrow, values, sums)
        greatest = highest
    return sums, greatest, total
