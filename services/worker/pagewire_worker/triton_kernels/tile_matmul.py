"""A matrix product whose rows have the same bits in any batch.

There is one tile shape per type and weight, and one order of sums; a sum is never split. See He et
al., "Defeating Nondeterminism in LLM Inference", Thinking Machines, 2025. Tiles are numbered in
groups of rows, as in Triton's tutorial on matrix products, so that concurrent tiles share data in
the L2 cache.
"""

from dataclasses import dataclass
from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.interpreter import INTERPRETED

GROUP_ROWS: Final = 8
"""Rows of tiles that are numbered column by column."""
_COLUMNS = 64
"""A weight gets at least this many columns of tiles if it can: few tokens give one row of tiles,
which has to keep a device busy."""
_NARROWEST, _WIDEST = 32, 128


@dataclass(frozen=True, slots=True)
class Tile:
    """Part of the product that one program computes; never chosen by the number of rows.

    Attributes:
        depth: Inputs that are multiplied at a time; with the instruction for `rows`, it fixes the
            order of sums.
        num_stages: Loads ahead; like `num_warps`, without effect on the order of sums.
    """

    rows: int
    columns: int
    depth: int
    num_stages: int
    num_warps: int = 4

    @classmethod
    def of(cls, dtype: torch.dtype, num_outputs: int) -> "Tile":
        """Return the tile of a weight."""
        if dtype == torch.float32:
            return cls(rows=32, columns=64, depth=32, num_stages=3)
        wanted = num_outputs // _COLUMNS
        columns = max(_NARROWEST, min(1 << wanted.bit_length() >> 1, _WIDEST))
        depth = 128 // dtype.itemsize
        return cls(rows=64, columns=columns, depth=depth, num_stages=4 if columns == _WIDEST else 6)


@dataclass(frozen=True, slots=True)
class ProductScales:
    """The factors of a product of integers.

    Attributes:
        rows: Of the rows of `x`, float32 [tokens, 1].
        outputs: Of the rows of the weight, float32 [outputs, 1].
        dtype: Type of the product.
    """

    rows: Tensor
    outputs: Tensor
    dtype: torch.dtype


def tile_matmul(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    tile: Tile | None = None,
    scales: ProductScales | None = None,
) -> Tensor:
    """Return x W^T + b, [tokens, outputs] of the type of `x`: summed in float32, rounded once.

    The bits of a row depend on that row, `weight`, `bias` and `tile` alone. Products of int8 are
    summed in int32, and scaled once.

    Args:
        x: [tokens, inputs], float32, float16, bfloat16 or int8. Rows are contiguous.
        weight: [outputs, inputs] of that type. Rows are contiguous.
        bias: [outputs] of the type of the product.
        tile: By default the tile of this type and weight.
        scales: Of int8; None for other types.
    """
    dtype = x.dtype if scales is None else scales.dtype
    _check_tensors(x, weight, bias, scales, dtype)
    (num_rows, num_inputs), num_outputs = x.shape, len(weight)
    product = torch.empty((num_rows, num_outputs), dtype=dtype, device=x.device)
    if num_rows == 0:
        return product
    tile = Tile.of(x.dtype, num_outputs) if tile is None else tile
    grid = (triton.cdiv(num_rows, tile.rows) * triton.cdiv(num_outputs, tile.columns),)
    _tile_matmul[grid](
        x,
        weight,
        bias,
        None if scales is None else scales.rows,
        None if scales is None else scales.outputs,
        product,
        num_rows,
        num_outputs,
        num_inputs,
        x.stride(0),
        weight.stride(0),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        DEPTH=tile.depth,
        GROUP=GROUP_ROWS,
        IS_WHOLE=num_inputs % tile.depth == 0,
        INTERPRETED=INTERPRETED,
        num_stages=tile.num_stages,
        num_warps=tile.num_warps,
    )
    return product


def _check_tensors(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    scales: ProductScales | None,
    dtype: torch.dtype,
) -> None:
    assert x.shape[1] == weight.shape[1]
    assert x.dtype == weight.dtype
    assert x.stride(1) == weight.stride(1) == 1
    assert (x.dtype == torch.int8) == (scales is not None)
    if bias is not None:
        assert bias.shape == weight.shape[:1]
        assert bias.dtype == dtype
        assert bias.is_contiguous()
    if scales is not None:
        assert (len(scales.rows), len(scales.outputs)) == (len(x), len(weight))
        assert scales.rows.is_contiguous()
        assert scales.outputs.is_contiguous()


# One code for any number of rows: special code for 1 or multiples of 16 could sum differently.
@triton.jit(do_not_specialize=["num_rows"])
def _tile_matmul(
    x,
    weight,
    bias,
    row_scales,
    output_scales,
    product,
    num_rows,
    num_outputs,
    num_inputs,
    x_stride,
    weight_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    tile_row, tile_column = place_of_tile(
        tl.program_id(0), num_rows, num_outputs, ROWS, COLUMNS, GROUP
    )
    # int64: rows times their length may pass 2**31.
    rows = tile_row.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tile_column.to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    depths = tl.arange(0, DEPTH)
    lefts = x + rows[:, None] * x_stride + depths[None, :]
    rights = weight + columns[:, None] * weight_stride + depths[None, :]
    is_row, is_column = rows[:, None] < num_rows, columns[:, None] < num_outputs
    sums = tl.zeros([ROWS, COLUMNS], tl.float32 if row_scales is None else tl.int32)
    sums = add_products(
        sums,
        lefts,
        rights,
        is_row,
        is_column,
        depths,
        num_inputs,
        DEPTH,
        IS_WHOLE,
        INTERPRETED and row_scales is None,
    )
    is_inside = is_row & (columns[None, :] < num_outputs)
    if row_scales is not None:
        sums = _scaled(sums, row_scales, output_scales, rows, columns, num_rows, num_outputs)
    if bias is not None:
        added = tl.load(bias + columns, mask=columns < num_outputs, other=0.0)
        sums += added.to(tl.float32)[None, :]
    target = product + rows[:, None] * num_outputs + columns[None, :]
    tl.store(target, sums.to(product.dtype.element_ty), mask=is_inside)


# One line per argument would hide the loop itself.
# fmt: off
@triton.jit
def add_products(
    sums, lefts, rights, is_row, is_column, depths, num_inputs, DEPTH: tl.constexpr,
    IS_WHOLE: tl.constexpr, IS_WIDENED: tl.constexpr
):
    """Return `sums` [ROWS, COLUMNS] plus the products of rows and columns, over ascending inputs.

    Args:
        lefts, rights: Places of the first inputs, [ROWS, DEPTH] and [COLUMNS, DEPTH].
        is_row, is_column: Which rows and columns there are, [ROWS, 1] and [COLUMNS, 1].
        depths: 0 to DEPTH.
        IS_WHOLE: The number of inputs is a multiple of DEPTH.
        IS_WIDENED: Inputs become float32 first, for the interpreter.
    """
    for begin in range(0, num_inputs, DEPTH):
        is_left, is_right = is_row, is_column
        if not IS_WHOLE:
            is_input = depths[None, :] < num_inputs - begin
            is_left, is_right = is_row & is_input, is_column & is_input
        left = tl.load(lefts + begin, mask=is_left, other=0.0)
        right = tl.load(rights + begin, mask=is_right, other=0.0)
        if IS_WIDENED:
            left, right = left.to(tl.float32), right.to(tl.float32)
        # By default float32 would be cut to 19 bits.
        sums = tl.dot(left, tl.trans(right), sums, input_precision="ieee", out_dtype=sums.dtype)
    return sums
# fmt: on


@triton.jit
def _scaled(sums, row_scales, output_scales, rows, columns, num_rows, num_outputs):
    """Return sums of whole numbers times the scales of their rows and outputs, float32."""
    row_scale = tl.load(row_scales + rows, mask=rows < num_rows, other=0.0)
    output_scale = tl.load(output_scales + columns, mask=columns < num_outputs, other=0.0)
    return sums.to(tl.float32) * row_scale[:, None] * output_scale[None, :]


@triton.jit
def place_of_tile(
    program, num_rows, num_outputs, ROWS: tl.constexpr, COLUMNS: tl.constexpr, GROUP: tl.constexpr
):
    """Return the row and column of a program's tile: a group of rows goes through all columns."""
    tile_rows, tile_columns = tl.cdiv(num_rows, ROWS), tl.cdiv(num_outputs, COLUMNS)
    first = program // (GROUP * tile_columns) * GROUP
    height = tl.minimum(tile_rows - first, GROUP)
    within = program % (GROUP * tile_columns)
    return first + within % height, within // height
