"""Adapters of low rank of the experts that a router chooses: each choice with those of its adapter
and expert.

Choices are sorted by both, and a program computes a tile of one pair, as for experts. The matrices
of a pair lie where a table says, with the rank that its adapter has, since those of all experts
take too much memory to reserve. Both products are summed in float32 in one order, so that a row has
the same bits in any batch.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.low_rank import RANK_STEP, TILE_ROWS
from pagewire_worker.triton_kernels.route_tokens import SortedRows
from pagewire_worker.triton_kernels.tile_matmul import add_products

_DEPTH, _COLUMNS = 64, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTable:
    """Where the adapters of one matrix of all experts lie. Row slot * experts + expert is of both.

    Attributes:
        downs: Addresses of [parts * rank, inputs] of the type of the model, int64 [rows].
        ups: Addresses of [outputs, rank] of that type, int64 [rows].
        ranks: int32 [rows]; 0 for no adapter.
        scalings: float32 [rows, parts].
        sizes: Outputs of each part, at most two.
        max_rank: The largest rank of any.
    """

    downs: Tensor
    ups: Tensor
    ranks: Tensor
    scalings: Tensor
    sizes: tuple[int, ...]
    max_rank: int


def add_expert_adapters(
    y: Tensor, x: Tensor, rows: SortedRows, table: ExpertTable, choices_per_row: int
) -> None:
    """Add up (scaling * (down x)) of the adapter and expert of each choice to y, and round once.

    Args:
        y: [choices, outputs], contiguous.
        x: [rows, inputs] of that type, contiguous; choice c reads row c // `choices_per_row`.
        rows: Choices sorted by rows of the table, in blocks of TILE_ROWS.
    """
    num_parts, num_inputs = len(table.sizes), x.shape[1]
    assert x.is_contiguous()
    assert y.is_contiguous()
    assert x.dtype == y.dtype
    assert y.shape == (rows.num_choices, sum(table.sizes))
    width = triton.cdiv(table.max_rank, RANK_STEP) * RANK_STEP
    low = torch.empty((len(y), num_parts * width), dtype=torch.float32, device=x.device)
    _lower_experts[(len(rows.experts), num_parts * (width // RANK_STEP))](
        x,
        table.downs,
        table.scalings,
        table.ranks,
        rows.choices,
        rows.experts,
        low,
        num_inputs,
        width,
        num_parts,
        choices_per_row,
        ROWS=TILE_ROWS,
        COLUMNS=RANK_STEP,
        DEPTH=_DEPTH,
        IS_WHOLE=num_inputs % _DEPTH == 0,
        INTERPRETED=INTERPRETED,
    )
    _raise(y, low, rows, table, width)


def _raise(y: Tensor, low: Tensor, rows: SortedRows, table: ExpertTable, width: int) -> None:
    """Add up times `low` [choices, parts * width] to y [choices, outputs], and round once."""
    num_parts, first_size = len(table.sizes), table.sizes[0]
    num_tiles = sum(triton.cdiv(size, _COLUMNS) for size in table.sizes)
    _raise_experts[(len(rows.experts), num_tiles)](
        y,
        low,
        table.ups,
        table.ranks,
        rows.choices,
        rows.experts,
        y.shape[1],
        width,
        num_parts,
        first_size,
        ROWS=TILE_ROWS,
        COLUMNS=_COLUMNS,
        RANKS=RANK_STEP,
    )


def add_embedding_adapters(
    y: Tensor, token_ids: Tensor, rows: SortedRows, table: ExpertTable
) -> None:
    """Add up (scaling * row) of the adapter of each token to y, and round once.

    Args:
        y: [tokens, hidden], contiguous.
        token_ids: int64 [tokens], of the rows of `down`, which is [token ids, rank] here.
        rows: Tokens sorted by rows of the table, in blocks of TILE_ROWS.
    """
    assert y.is_contiguous()
    assert y.shape == (rows.num_choices, *table.sizes)
    width = triton.cdiv(table.max_rank, RANK_STEP) * RANK_STEP
    low = torch.empty((len(y), width), dtype=torch.float32, device=y.device)
    _look_up_rows[(len(rows.experts), width // RANK_STEP)](
        y,
        token_ids,
        table.downs,
        table.scalings,
        table.ranks,
        rows.choices,
        rows.experts,
        low,
        width,
        ROWS=TILE_ROWS,
        COLUMNS=RANK_STEP,
    )
    _raise(y, low, rows, table, width)


@triton.jit
def _look_up_rows(
    y,
    token_ids,
    downs,
    scalings,
    ranks,
    choices,
    keys,
    low,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    block = tl.program_id(0)
    key = tl.load(keys + block).to(tl.int64)
    if key < 0:
        return
    rank = tl.load(ranks + key)
    first = tl.program_id(1) * COLUMNS
    if first >= rank:
        return
    token = tl.load(choices + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row = tl.maximum(token, 0)
    columns = first + tl.arange(0, COLUMNS)
    down = tl.load(downs + key).to(y.dtype)
    token_id = tl.load(token_ids + row)
    is_value = (token >= 0)[:, None] & (columns < rank)[None, :]
    sources = down + token_id[:, None] * rank + columns[None, :]
    values = tl.load(sources, mask=is_value, other=0.0).to(tl.float32)
    tl.store(
        low + row[:, None] * width + columns[None, :],
        values * tl.load(scalings + key),
        mask=is_value,
    )


@triton.jit
def _lower_experts(
    x,
    downs,
    scalings,
    ranks,
    choices,
    keys,
    low,
    num_inputs,
    max_rank,
    num_parts,
    choices_per_row,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    block = tl.program_id(0)
    key = tl.load(keys + block).to(tl.int64)
    if key < 0:
        return
    rank = tl.load(ranks + key)
    tiles = max_rank // COLUMNS
    part, first = tl.program_id(1) // tiles, tl.program_id(1) % tiles * COLUMNS
    if first >= rank:
        return
    choice = tl.load(choices + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    is_row = choice[:, None] >= 0
    source = tl.maximum(choice, 0) // choices_per_row
    columns = first + tl.arange(0, COLUMNS)
    depths = tl.arange(0, DEPTH)
    down = tl.load(downs + key).to(x.dtype)
    lefts = x + source[:, None] * num_inputs + depths[None, :]
    rights = down + (part * rank + columns[:, None]).to(tl.int64) * num_inputs + depths[None, :]
    is_column = columns[:, None] < rank
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    sums = add_products(
        sums, lefts, rights, is_row, is_column, depths, num_inputs, DEPTH, IS_WHOLE, INTERPRETED
    )
    scaling = tl.load(scalings + key * num_parts + part)
    row = tl.maximum(choice, 0)[:, None] * num_parts + part
    target = low + row * max_rank + columns[None, :]
    tl.store(target, sums * scaling, mask=is_row & (columns[None, :] < rank))


@triton.jit
def _raise_experts(
    y,
    low,
    ups,
    ranks,
    choices,
    keys,
    num_outputs,
    max_rank,
    num_parts,
    first_size,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
):
    block = tl.program_id(0)
    key = tl.load(keys + block).to(tl.int64)
    if key < 0:
        return
    rank = tl.load(ranks + key)
    if rank == 0:
        return
    # No tile holds outputs of two parts, which have different inputs.
    tile, part, begin, end = tl.program_id(1), 0, 0, first_size
    first_tiles = tl.cdiv(first_size, COLUMNS)
    if tile >= first_tiles:
        tile, part, begin, end = tile - first_tiles, 1, first_size, num_outputs
    choice = tl.load(choices + block.to(tl.int64) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    row, is_row = tl.maximum(choice, 0), choice >= 0
    columns = begin + tile * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < end
    up = tl.load(ups + key).to(y.dtype)
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for done in range(0, rank, RANKS):
        within = done + tl.arange(0, RANKS)
        is_rank = within[None, :] < rank
        lefts = low + (row[:, None] * num_parts + part) * max_rank + within[None, :]
        left = tl.load(lefts, mask=is_row[:, None] & is_rank, other=0.0)
        rights = up + columns[:, None].to(tl.int64) * rank + within[None, :]
        right = tl.load(rights, mask=is_column[:, None] & is_rank, other=0.0).to(tl.float32)
        sums = tl.dot(left, tl.trans(right), sums, input_precision="ieee")
    places = y + row[:, None] * num_outputs + columns[None, :]
    is_inside = is_row[:, None] & is_column[None, :]
    sums += tl.load(places, mask=is_inside, other=0.0).to(tl.float32)
    tl.store(places, sums.to(y.dtype.element_ty), mask=is_inside)
