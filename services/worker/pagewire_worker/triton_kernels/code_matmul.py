"""A matrix product with codes of 4 or 8 bits, which are widened in registers.

A row has the same bits in any batch: there is one tile shape per type, and one order of sums. A
group is summed over its inputs in ascending order in one accumulator, or in parts of one slab. Sums
are scaled and added in ascending order. Tiles are those of weights times rows: on Hopper the left
operand of a product may lie in registers, where codes are widened, and the right one may not.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import Offset
from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.packed_codes import INNER, PackedCodes
from pagewire_worker.triton_kernels.tile_matmul import GROUP_ROWS, place_of_tile


@dataclass(frozen=True, slots=True)
class CodeTile:
    """Part of the product that one program computes; never chosen by the number of rows.

    Attributes:
        num_stages: Loads ahead; like `num_warps`, without effect on the order of sums.
    """

    rows: int
    columns: int
    num_stages: int
    num_warps: int = 4

    @classmethod
    def of(cls, dtype: torch.dtype) -> "CodeTile":
        """Return the tile for rows of a type."""
        if dtype == torch.float32:
            return cls(rows=32, columns=64, num_stages=3)
        return cls(rows=64, columns=64, num_stages=4)


def code_matmul(
    x: Tensor, codes: PackedCodes, bias: Tensor | None = None, tile: CodeTile | None = None
) -> Tensor:
    """Return x W^T + b, [tokens, outputs] of the type of `x`: summed in float32, rounded once.

    The bits of a row depend on that row, `codes`, `bias` and `tile` alone. Values of codes, less
    their zero points, are rounded to the type of `x`, which has whole numbers up to 256 exactly.

    Args:
        x: [tokens, inputs], float32, float16 or bfloat16. Rows are contiguous.
        bias: [outputs] of that type.
        tile: By default the tile of this type.
    """
    assert x.shape[1] == codes.num_inputs
    assert x.stride(1) == 1
    assert bias is None or (bias.dtype == x.dtype and bias.is_contiguous())
    num_rows, num_outputs = len(x), len(codes.words)
    product = torch.empty((num_rows, num_outputs), dtype=x.dtype, device=x.device)
    if num_rows == 0:
        return product
    tile = CodeTile.of(x.dtype) if tile is None else tile
    grid = (triton.cdiv(num_rows, tile.rows) * triton.cdiv(num_outputs, tile.columns),)
    _code_matmul[grid](
        x,
        codes.words,
        codes.table,
        codes.scales,
        codes.offsets,
        bias,
        product,
        num_rows,
        num_outputs,
        codes.num_inputs,
        codes.group,
        x.stride(0),
        codes.words.stride(0),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        INNER=INNER,
        BITS=codes.bits,
        IS_FLOAT=codes.is_float,
        FIRST=codes.first,
        NUM_PRODUCTS=codes.num_products,
        HAS_MINIMA=codes.offset is Offset.MINIMUM,
        IS_WHOLE=codes.num_inputs % codes.slab == 0,
        GROUP_ROWS=GROUP_ROWS,
        INTERPRETED=INTERPRETED,
        num_stages=tile.num_stages,
        num_warps=tile.num_warps,
    )
    return product


# One code for any number of rows: special code for 1 or multiples of 16 could sum differently.
# fmt: off
@triton.jit(do_not_specialize=["num_rows"])
def _code_matmul(
    x, words, table, scales, offsets, bias, product, num_rows, num_outputs, num_inputs, group,
    x_stride, words_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
    BITS: tl.constexpr, IS_FLOAT: tl.constexpr, FIRST: tl.constexpr, NUM_PRODUCTS: tl.constexpr,
    HAS_MINIMA: tl.constexpr, IS_WHOLE: tl.constexpr, GROUP_ROWS: tl.constexpr,
    INTERPRETED: tl.constexpr
):
    tile_row, tile_column = place_of_tile(
        tl.program_id(0), num_rows, num_outputs, ROWS, COLUMNS, GROUP_ROWS
    )
    # int64: rows times their length may pass 2**31.
    rows = tile_row.to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tile_column.to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    inner, is_row, is_column = tl.arange(0, INNER), rows < num_rows, columns < num_outputs
    lefts = words + columns[:, None] * words_stride + inner[None, :]
    rights = x + rows[:, None] * x_stride + inner[None, :]
    sums = code_products(
        lefts, rights, table, scales, offsets, is_row, columns, num_outputs, num_inputs, group,
        ROWS, COLUMNS, INNER, BITS, IS_FLOAT, FIRST, NUM_PRODUCTS, HAS_MINIMA, IS_WHOLE, INTERPRETED
    )
    if bias is not None:
        sums += tl.load(bias + columns, mask=is_column, other=0.0).to(tl.float32)[:, None]
    target = product + rows[None, :] * num_outputs + columns[:, None]
    is_inside = is_column[:, None] & is_row[None, :]
    tl.store(target, sums.to(product.dtype.element_ty), mask=is_inside)


@triton.jit
def code_products(
    lefts, rights, table, scales, offsets, is_row, columns, num_outputs, num_inputs, group,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr, FIRST: tl.constexpr, NUM_PRODUCTS: tl.constexpr,
    HAS_MINIMA: tl.constexpr, IS_WHOLE: tl.constexpr, INTERPRETED: tl.constexpr
):
    """Return the scaled sums of a tile, float32 [COLUMNS, ROWS].

    Args:
        lefts: Pointers to the first INNER words of each output, [COLUMNS, INNER].
        rights: Pointers to the first INNER inputs of each row, [ROWS, INNER].
        scales, offsets: Of the matrix, [groups, outputs]; offsets may be None.
        is_row: Which rows are there, [ROWS].
        columns: The outputs of the tile, [COLUMNS].
    """
    inner, is_column = tl.arange(0, INNER), columns < num_outputs
    nothing = tl.zeros([COLUMNS, ROWS], tl.float32)
    sums = nothing
    for begin in range(0, num_inputs, 32 // BITS * INNER):
        packed = tl.load(lefts + begin // (32 // BITS), mask=is_column[:, None], other=0)
        for part in tl.static_range(32 // BITS // NUM_PRODUCTS):
            first = begin + part * NUM_PRODUCTS * INNER
            is_there = columns < tl.where(first < num_inputs, num_outputs, 0)
            at = (first // group).to(tl.int64) * num_outputs + columns
            scale = tl.load(scales + at, mask=is_there, other=0.0).to(tl.float32)
            if offsets is not None:
                offset = tl.load(offsets + at, mask=is_there, other=0.0).to(tl.float32)
            within = nothing
            if HAS_MINIMA:
                total = tl.zeros([ROWS], tl.float32)
            for place in tl.static_range(part * NUM_PRODUCTS, (part + 1) * NUM_PRODUCTS):
                is_right = is_row[:, None]
                if not IS_WHOLE:
                    is_right &= inner[None, :] < num_inputs - begin - place * INNER
                right = tl.load(rights + begin + place * INNER, mask=is_right, other=0.0)
                left = _values(packed, table, place, BITS, IS_FLOAT, FIRST)
                if HAS_MINIMA:
                    total += tl.sum(right.to(tl.float32), axis=1)
                elif offsets is not None:
                    left -= offset[:, None]
                within = _added(within, left, right, INTERPRETED)
            sums += within * scale[:, None]
            if HAS_MINIMA:
                sums += offset[:, None] * total[None, :]
    return sums
# fmt: on


@triton.jit
def _values(
    packed,
    table,
    place: tl.constexpr,
    BITS: tl.constexpr,
    IS_FLOAT: tl.constexpr,
    FIRST: tl.constexpr,
):
    """Return the values of the codes at a place in their words, float32.

    Floats become float16 of the same exponent bits: a power of 2 makes up for its greater bias.
    """
    if IS_FLOAT:
        code = packed >> (place * BITS)
        if BITS == 8:
            half = ((code & 128) << 8) | ((code & 127) << 7)
            return half.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * 256.0
        half = ((code & 8) << 12) | ((code & 7) << 9)
        return half.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32) * 16384.0
    if BITS == 8:
        return ((packed << (24 - place * 8)) >> 24).to(tl.float32)
    if table is not None:
        return tl.load(table + ((packed >> (place * 4)) & 15))
    return (((packed >> (place * 4)) & 15) + FIRST).to(tl.float32)


@triton.jit
def _added(sums, left, right, INTERPRETED: tl.constexpr):
    """Return the sums and a product in the type of `right`."""
    if INTERPRETED:
        right = right.to(tl.float32)
    # By default float32 would be cut to 19 bits.
    return tl.dot(left.to(right.dtype), tl.trans(right), sums, input_precision="ieee")
