"""Adapters of low rank: y += scaling * up (down x), each token with its own (Hu et al., 2021).

Tokens are sorted by adapter, and a program computes a tile of one adapter, as for experts. Both
products are summed in float32 in one order; a row has the same bits in any batch. The loop over
ranks ends at the rank of the adapter.
"""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.route_tokens import SortedRows
from pagewire_worker.triton_kernels.tile_matmul import add_products

TILE_ROWS: Final = 16
"""Tokens of a tile: few, since a step of decodes has few tokens of one adapter."""

RANK_STEP: Final = 16
"""Largest ranks are multiples of this."""

_DEPTH, _COLUMNS = 64, 64


def lower_rank(
    x: Tensor, down: Tensor, scalings: Tensor, ranks: Tensor, rows: SortedRows, num_parts: int
) -> Tensor:
    """Return scaling * (down x), float32 [tokens, parts * max_rank]; undefined behind the ranks.

    Args:
        x: [tokens, inputs], contiguous.
        down: [slots, parts * max_rank, inputs] of that type, contiguous.
        scalings: float32 [slots, parts].
        ranks: int32 [slots].
        rows: Tokens sorted by slot, in blocks of TILE_ROWS.
    """
    width, num_inputs = down.shape[1:]
    max_rank = width // num_parts
    assert x.is_contiguous()
    assert down.is_contiguous()
    assert x.dtype == down.dtype
    assert x.shape[1] == num_inputs
    assert max_rank % RANK_STEP == 0
    columns = next(size for size in (64, 32, 16) if max_rank % size == 0)
    low = torch.empty((len(x), width), dtype=torch.float32, device=x.device)
    _lower_rank[(len(rows.experts), width // columns)](
        x,
        down,
        scalings,
        ranks,
        rows.choices,
        rows.experts,
        low,
        width,
        num_inputs,
        max_rank,
        num_parts,
        ROWS=TILE_ROWS,
        COLUMNS=columns,
        DEPTH=_DEPTH,
        IS_WHOLE=num_inputs % _DEPTH == 0,
        INTERPRETED=INTERPRETED,
        num_stages=4,
    )
    return low


@triton.jit
def _lower_rank(
    x,
    down,
    scalings,
    ranks,
    tokens,
    slots,
    low,
    width,
    num_inputs,
    max_rank,
    num_parts,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    block = tl.program_id(0)
    slot = tl.load(slots + block).to(tl.int64)
    if slot < 0:
        return
    first = tl.program_id(1) * COLUMNS
    if first % max_rank >= tl.load(ranks + slot):
        return
    token = tl.load(tokens + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    is_row = token[:, None] >= 0
    columns = first + tl.arange(0, COLUMNS)
    depths = tl.arange(0, DEPTH)
    lefts = x + tl.maximum(token, 0)[:, None] * num_inputs + depths[None, :]
    rights = down + (slot * width + columns[:, None]) * num_inputs + depths[None, :]
    is_column = columns[:, None] < width
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    sums = add_products(
        sums, lefts, rights, is_row, is_column, depths, num_inputs, DEPTH, IS_WHOLE, INTERPRETED
    )
    scaling = tl.load(scalings + slot * num_parts + first // max_rank)
    target = low + tl.maximum(token, 0)[:, None] * width + columns[None, :]
    tl.store(target, sums * scaling, mask=is_row)


def raise_rank(
    y: Tensor, low: Tensor, up: Tensor, ranks: Tensor, rows: SortedRows, sizes: tuple[int, ...]
) -> None:
    """Add up times `low` to y [tokens, outputs] in float32, and round once.

    Args:
        low: As `lower_rank` returns it.
        up: [slots, outputs, max_rank], contiguous.
        sizes: Outputs of each part, at most three.
    """
    (num_outputs, max_rank), num_parts = up.shape[1:], len(sizes)
    assert low.is_contiguous()
    assert up.is_contiguous()
    assert y.stride(1) == 1
    assert y.shape[1] == num_outputs == sum(sizes)
    first, second, third = (*sizes, 0, 0)[:3]
    num_tiles = sum(triton.cdiv(size, _COLUMNS) for size in sizes)
    _raise_rank[(len(rows.experts), num_tiles)](
        y,
        low,
        up,
        ranks,
        rows.choices,
        rows.experts,
        y.stride(0),
        num_outputs,
        max_rank,
        num_parts,
        first,
        second,
        third,
        ROWS=TILE_ROWS,
        COLUMNS=_COLUMNS,
        RANKS=RANK_STEP,
    )


@triton.jit
def _raise_rank(
    y,
    low,
    up,
    ranks,
    tokens,
    slots,
    y_stride,
    num_outputs,
    max_rank,
    num_parts,
    first_size,
    second_size,
    third_size,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
):
    block = tl.program_id(0)
    slot = tl.load(slots + block).to(tl.int64)
    if slot < 0:
        return
    # No tile holds outputs of two parts, which have different inputs.
    tile, part, begin, end = tl.program_id(1), 0, 0, first_size
    first_tiles, second_tiles = tl.cdiv(first_size, COLUMNS), tl.cdiv(second_size, COLUMNS)
    if tile >= first_tiles + second_tiles:
        tile, part = tile - first_tiles - second_tiles, 2
        begin, end = first_size + second_size, first_size + second_size + third_size
    elif tile >= first_tiles:
        tile, part = tile - first_tiles, 1
        begin, end = first_size, first_size + second_size
    token = tl.load(tokens + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row = tl.maximum(token, 0)
    is_row = token >= 0
    columns = begin + tile * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < end
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    rank = tl.load(ranks + slot)
    for done in range(0, rank, RANKS):
        within = done + tl.arange(0, RANKS)
        is_rank = within[None, :] < rank
        lefts = low + (row[:, None] * num_parts + part) * max_rank + within[None, :]
        left = tl.load(lefts, mask=is_row[:, None] & is_rank, other=0.0)
        rights = up + (slot * num_outputs + columns[:, None]) * max_rank + within[None, :]
        right = tl.load(rights, mask=is_column[:, None] & is_rank, other=0.0).to(tl.float32)
        sums = tl.dot(left, tl.trans(right), sums, input_precision="ieee")
    places = y + row[:, None] * y_stride + columns[None, :]
    is_inside = is_row[:, None] & is_column[None, :]
    sums += tl.load(places, mask=is_inside, other=0.0).to(tl.float32)
    tl.store(places, sums.to(y.dtype.element_ty), mask=is_inside)
