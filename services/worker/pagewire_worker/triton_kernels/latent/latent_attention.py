"""Attention over paged latents: of decodes in parallel over splits, and of chunks in tiles.

As decode_attention and chunk_attention, with one KV head whose values are the first numbers of its
keys. A tile of latents is read once for both. Keys are multiplied in two parts, the latent and the
rotated numbers behind it, as in vLLM's Triton kernel: their common length is no power of 2. Decodes
and chunks have the same arithmetic, so a token gets the same bits from both.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.backend.attention import AttentionKind
from pagewire_worker.checkpoint.dtypes import FP8
from pagewire_worker.triton_kernels.attention_options import LEAST_ROWS, ScoreScale
from pagewire_worker.triton_kernels.attention_split import HIDDEN, merge_split, seen_by
from pagewire_worker.triton_kernels.decode_attention import (
    Decodes,
    Partials,
    launch_merge,
    num_split_programs,
)
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.paged_sequences import PagedLayer, PagedSequences, SplitPlan
from pagewire_worker.triton_kernels.query_tiles import QueryTiles, query_tile


def heads_per_tile(num_heads: int) -> int:
    """Return how many heads share a tile: the most that have rows in it and divide all."""
    return max(size for size in range(1, LEAST_ROWS + 1) if num_heads % size == 0)


@dataclass(frozen=True, slots=True)
class LatentOptions:
    """Options of one launch; see AttentionOptions.

    Attributes:
        tile: Most positions of a tile. It is read once, and takes the memory of a tile of keys.
    """

    tile: int
    num_warps: int
    num_stages: int

    @classmethod
    def of(cls, dtype: torch.dtype) -> "LatentOptions":
        """Return the options for queries of a type."""
        return cls(16, 16, 1) if dtype == torch.float32 else cls(32, 8, 2)


def latent_decodes(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    decodes: Decodes,
    attended: Tensor,
    partials: Partials,
    kind: AttentionKind,
    split_plan: SplitPlan,
) -> None:
    """Compute attention for the token of each sequence in `decodes`; see decode_attention.

    Args:
        query: [tokens, heads, latent + rotated], contiguous.
        attended: [tokens, heads, latent]; rows of the tokens of `decodes` are written.
    """
    if len(decodes.which) == 0:
        return
    num_parts = query.shape[1] // heads_per_tile(query.shape[1])
    num_programs = num_split_programs(len(decodes.which), num_parts, decodes.most_splits)
    named, scale = _named(query, layer, kind, split_plan, LEAST_ROWS)
    _latent_splits[(len(decodes.which), num_parts, num_programs)](
        query,
        layer.cache.key,
        decodes.which,
        decodes.firsts,
        sequences.query_starts,
        sequences.seq_lens,
        sequences.block_tables,
        partials.sums,
        partials.greatest,
        partials.total,
        scale,
        sequences.block_tables.stride(0),
        *layer.cache.key.stride()[:2],
        **named,
    )
    launch_merge(attended, layer, sequences, decodes, partials, 0, split_plan)


def latent_chunks(
    query: Tensor,
    layer: PagedLayer,
    sequences: PagedSequences,
    tiles: QueryTiles,
    attended: Tensor,
    kind: AttentionKind,
    split_plan: SplitPlan,
) -> None:
    """Compute attention for the tokens of chunks; see chunk_attention.

    Args:
        query: [tokens, heads, latent + rotated], contiguous.
        attended: [tokens, heads, latent]; rows of the tokens of the tiles are written.
    """
    if len(tiles.sequences) == 0:
        return
    num_parts = query.shape[1] // heads_per_tile(query.shape[1])
    named, scale = _named(query, layer, kind, split_plan, tiles.num_rows)
    _latent_tiles[(len(tiles.sequences), num_parts)](
        query,
        layer.cache.key,
        tiles.sequences,
        tiles.firsts,
        sequences.query_starts,
        sequences.seq_lens,
        sequences.block_tables,
        attended,
        scale,
        sequences.block_tables.stride(0),
        *layer.cache.key.stride()[:2],
        **named,
    )


def _named(
    query: Tensor, layer: PagedLayer, kind: AttentionKind, split_plan: SplitPlan, num_rows: int
) -> tuple[dict[str, Any], float]:
    """Return what both kernels take by name, and the factor of scores for powers of 2."""
    cache = layer.cache
    assert kind.window is None
    assert kind.softcap is None
    assert cache.key.dtype in (query.dtype, FP8)
    options, rank = LatentOptions.of(query.dtype), cache.value.shape[3]
    turned = query.shape[2] - rank
    plan = replace(split_plan, tile=min(split_plan.tile, options.tile))
    named = {
        "RANK": rank,
        "TURNED": turned,
        "NUM_HEADS": query.shape[1],
        "GROUP": heads_per_tile(query.shape[1]),
        "SPLIT": plan.split,
        "TILE": plan.tile,
        "BLOCK_SIZE": cache.block_size,
        "ROWS": num_rows,
        "WIDTH": max(16, triton.next_power_of_2(rank)),
        "TURNED_WIDTH": max(16, triton.next_power_of_2(turned)),
        "INTERPRETED": INTERPRETED,
        "num_warps": options.num_warps,
        "num_stages": options.num_stages,
    }
    return named, ScoreScale.of(kind, query.shape[2], layer.key_scale).factor


# One line per argument would hide the kernels themselves. The width of a step's tables is not
# specialized: a kernel must not be compiled again while requests run.
# fmt: off
@triton.jit(do_not_specialize=["table_stride"])
def _latent_splits(
    query, key, which, firsts, query_starts, seq_lens, tables, sums_out, greatest_out, total_out,
    score_scale, table_stride, block_stride, token_stride, RANK: tl.constexpr,
    TURNED: tl.constexpr, NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr,
    TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    TURNED_WIDTH: tl.constexpr, INTERPRETED: tl.constexpr
):
    decode, part = tl.program_id(0), tl.program_id(1)
    sequence = tl.load(which + decode)
    end = tl.load(seq_lens + sequence)
    if tl.program_id(2) * SPLIT >= end:
        return
    token = tl.load(query_starts + sequence).to(tl.int64)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    last = tl.arange(0, TURNED_WIDTH)
    heads = part * GROUP + rows
    num_seen = tl.cdiv(end, SPLIT)
    first_place = tl.load(firsts + decode).to(tl.int64) * NUM_HEADS + heads * num_seen
    is_row = (rows[:, None] < GROUP) & (columns[None, :] < RANK)
    is_last = (rows[:, None] < GROUP) & (last[None, :] < TURNED)
    starts = query + (token * NUM_HEADS + heads[:, None]) * (RANK + TURNED)
    latent_query = tl.load(starts + columns[None, :], mask=is_row, other=0.0)
    turned_query = tl.load(starts + RANK + last[None, :], mask=is_last, other=0.0)
    for split in range(tl.program_id(2), num_seen, tl.num_programs(2)):
        sums, greatest, total = _attend_split(
            latent_query, turned_query, key, tables + sequence.to(tl.int64) * table_stride,
            tl.full([ROWS], 0, tl.int32) + end - 1, end, split * SPLIT, score_scale, block_stride,
            token_stride, RANK, TURNED, SPLIT, TILE, BLOCK_SIZE, ROWS, WIDTH, TURNED_WIDTH,
            INTERPRETED
        )
        places = first_place + split
        tl.store(sums_out + places[:, None] * RANK + columns[None, :], sums, mask=is_row)
        tl.store(greatest_out + places, greatest, mask=rows < GROUP)
        tl.store(total_out + places, total, mask=rows < GROUP)


@triton.jit(do_not_specialize=["table_stride"])
def _latent_tiles(
    query, key, tile_sequences, tile_firsts, query_starts, seq_lens, tables, attended, score_scale,
    table_stride, block_stride, token_stride, RANK: tl.constexpr, TURNED: tl.constexpr,
    NUM_HEADS: tl.constexpr, GROUP: tl.constexpr, SPLIT: tl.constexpr, TILE: tl.constexpr,
    BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    TURNED_WIDTH: tl.constexpr, INTERPRETED: tl.constexpr
):
    sequence, _, end, targets, is_row, row_positions = query_tile(
        tile_sequences, tile_firsts, query_starts, seq_lens, RANK, NUM_HEADS, GROUP, ROWS, WIDTH
    )
    latents = query_tile(
        tile_sequences, tile_firsts, query_starts, seq_lens, RANK + TURNED, NUM_HEADS, GROUP, ROWS,
        WIDTH
    )[3]
    turned = query_tile(
        tile_sequences, tile_firsts, query_starts, seq_lens, RANK + TURNED, NUM_HEADS, GROUP, ROWS,
        TURNED_WIDTH
    )
    is_last = turned[4] & (tl.arange(0, TURNED_WIDTH)[None, :] < TURNED)
    latent_query = tl.load(query + latents, mask=is_row, other=0.0)
    turned_query = tl.load(query + RANK + turned[3], mask=is_last, other=0.0)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    greatest = tl.full([ROWS], HIDDEN, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for split_begin in range(0, end, SPLIT):
        split_sums, split_greatest, split_total = _attend_split(
            latent_query, turned_query, key, tables + sequence.to(tl.int64) * table_stride,
            row_positions, end, split_begin, score_scale, block_stride, token_stride, RANK, TURNED,
            SPLIT, TILE, BLOCK_SIZE, ROWS, WIDTH, TURNED_WIDTH, INTERPRETED
        )
        sums, greatest, total = merge_split(
            sums, greatest, total, split_sums, split_greatest, split_total
        )
    result = sums / tl.broadcast_to(total[:, None], [ROWS, WIDTH])
    tl.store(attended + targets, result.to(attended.dtype.element_ty), mask=is_row)


@triton.jit
def _attend_split(
    latent_query, turned_query, key, table, row_positions, end, split_begin, score_scale,
    block_stride, token_stride, RANK: tl.constexpr, TURNED: tl.constexpr, SPLIT: tl.constexpr,
    TILE: tl.constexpr, BLOCK_SIZE: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
    TURNED_WIDTH: tl.constexpr, INTERPRETED: tl.constexpr
):
    """Return sums [ROWS, WIDTH], greatest scores [ROWS] and total weights [ROWS], in float32.

    As attend_split does.
    """
    columns, last = tl.arange(0, WIDTH), tl.arange(0, TURNED_WIDTH)
    greatest = tl.full([ROWS], HIDDEN, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, WIDTH], tl.float32)
    for tile_begin in range(split_begin, tl.minimum(split_begin + SPLIT, end), TILE):
        positions = tile_begin + tl.arange(0, TILE)
        # Other blocks may belong to other sequences or be unwritten: they must not even add zeros.
        is_there = positions < end
        blocks = tl.load(table + positions // BLOCK_SIZE, mask=is_there, other=0).to(tl.int64)
        places = blocks * block_stride + (positions % BLOCK_SIZE).to(tl.int64) * token_stride
        is_read = is_there[:, None] & (columns[None, :] < RANK)
        latents = tl.load(key + places[:, None] + columns[None, :], mask=is_read, other=0.0)
        latents = latents.to(latent_query.dtype)  # of 8-bit floats
        is_read = is_there[:, None] & (last[None, :] < TURNED)
        turned = tl.load(key + RANK + places[:, None] + last[None, :], mask=is_read, other=0.0)
        turned = turned.to(turned_query.dtype)
        scores = tl.zeros([ROWS, TILE], tl.float32)
        scores = _add_product(latent_query, tl.trans(latents), scores, INTERPRETED)
        scores = _add_product(turned_query, tl.trans(turned), scores, INTERPRETED) * score_scale
        is_seen = seen_by(row_positions, positions, is_there, 0)
        scores = tl.where(is_seen, scores, HIDDEN)
        highest = tl.maximum(greatest, tl.max(scores, axis=1))
        factor = tl.exp2(greatest - highest)
        weights = tl.exp2(scores - highest[:, None])
        total = tl.fma(total, factor, tl.sum(weights, axis=1))
        nothing = tl.zeros([ROWS, WIDTH], tl.float32)
        weighted = _add_product(weights.to(latents.dtype), latents, nothing, INTERPRETED)
        sums = tl.fma(sums, tl.broadcast_to(factor[:, None], [ROWS, WIDTH]), weighted)
        greatest = highest
    return sums, greatest, total
# fmt: on


@triton.jit
def _add_product(a, b, sums, INTERPRETED: tl.constexpr):
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    # By default float32 would be cut to 19 bits.
    return tl.dot(a, b, sums, input_precision="ieee")
