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
from pagewire_worker.triton_kernels.attention_options import ScoreScale
from pagewire_worker.triton_kernels.attention_split import HIDDEN
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences
from pagewire_worker.triton_kernels.query_tiles import QueryTiles, query_tile

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

    It needs tensor cores, so float32 and a cache of another type go in splits.
    """
    is_narrow = query.dtype in (torch.float16, torch.bfloat16) and query.shape[2] <= WIDEST_HEAD
    return is_narrow and layer.cache.key.dtype == query.dtype


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
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = layer.cache.num_kv_heads
    scale = ScoreScale.of(kind, head_dim, layer.key_scale)
    width = max(16, triton.next_power_of_2(head_dim))
    _attend_prompts[(len(tiles.sequences), num_kv_heads)](
        query,
        layer.cache.key,
        layer.cache.value,
        tiles.sequences,
        tiles.firsts,
        sequences.query_starts,
        sequences.seq_lens,
        sequences.block_tables,
        attended,
        scale.factor,
        scale.softcap,
        layer.value_scale,
        sequences.block_tables.stride(0),
        *layer.strides,
        head_dim,
        NUM_HEADS=num_heads,
        GROUP=num_heads // num_kv_heads,
        WINDOW=kind.window or 0,
        HAS_SOFTCAP=kind.softcap is not None,
        TILE=cut.positions,
        BLOCK_SIZE=layer.cache.block_size,
        ROWS=tiles.num_rows,
        WIDTH=width,
        IS_WHOLE=width == head_dim,
        INTERPRETED=INTERPRETED,
        num_warps=cut.num_warps,
        num_stages=cut.num_stages,
    )


# One line per argument would hide the kernel itself. The width of a step's tables is not
# specialized: a kernel must not be compiled again while requests run.
# fmt: off
@triton.jit(do_not_specialize=["table_stride"])
def _attend_prompts(
    query, key, value, tile_sequences, tile_firsts, query_starts, seq_lens, tables, attended,
    score_scale, softcap, value_scale, table_stride, block_stride, token_stride, head_stride,
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
    greatest = tl.full([ROWS], HIDDEN, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
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
        # Other blocks may belong to other sequences or be unwritten: they must add nothing.
        blocks = tl.load(table + positions // BLOCK_SIZE, mask=is_there, other=0)
        inside = (positions % BLOCK_SIZE).to(tl.int64) * token_stride
        places = blocks.to(tl.int64) * block_stride + inside
        offsets = places[:, None] + columns[None, :]
        if IS_MASKED or not IS_WHOLE:
            is_read = is_there[:, None] & (columns < head_dim)[None, :]
            keys = tl.load(key + offsets, mask=is_read, other=0.0)
            values = tl.load(value + offsets, mask=is_read, other=0.0)
        else:
            keys, values = tl.load(key + offsets), tl.load(value + offsets)
        if INTERPRETED:
            scores = tl.dot(queries.to(tl.float32), tl.trans(keys).to(tl.float32)) * score_scale
        else:
            scores = tl.dot(queries, tl.trans(keys)) * score_scale
        if HAS_SOFTCAP:
            # softcap * tanh(scores), in powers of 2
            scores = softcap * (1.0 - 2.0 / (tl.exp(2.0 * scores) + 1.0))
        if IS_MASKED:
            is_seen = (positions[None, :] <= row_positions[:, None]) & is_there[None, :]
            if WINDOW > 0:
                is_seen = is_seen & (positions[None, :] > row_positions[:, None] - WINDOW)
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
