"""The product of each head with a matrix of its own; a row has the same bits in any batch."""

import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.interpreter import INTERPRETED
from pagewire_worker.triton_kernels.tile_matmul import Tile, add_products


def head_matmul(x: Tensor, weights: Tensor, product: Tensor) -> None:
    """Write x W^T of each head to `product`, summed in float32 and rounded once.

    Args:
        x: [tokens, heads, inputs].
        weights: [heads, outputs, inputs] of that type, contiguous.
        product: [tokens, heads, outputs] of that type. As of `x`, the numbers of a head are
            contiguous, and heads and tokens have any strides.
    """
    num_tokens, num_heads, num_inputs = x.shape
    num_outputs = weights.shape[1]
    assert weights.shape == (num_heads, num_outputs, num_inputs)
    assert product.shape == (num_tokens, num_heads, num_outputs)
    assert x.dtype == weights.dtype == product.dtype
    assert x.stride(2) == product.stride(2) == 1
    assert weights.is_contiguous()
    if num_tokens == 0:
        return
    tile = Tile.of(x.dtype, num_outputs)
    grid = (
        triton.cdiv(num_tokens, tile.rows),
        triton.cdiv(num_outputs, tile.columns),
        num_heads,
    )
    _head_matmul[grid](
        x,
        weights,
        product,
        num_tokens,
        num_outputs,
        num_inputs,
        x.stride(0),
        x.stride(1),
        product.stride(0),
        product.stride(1),
        ROWS=tile.rows,
        COLUMNS=tile.columns,
        DEPTH=tile.depth,
        IS_WHOLE=num_inputs % tile.depth == 0,
        INTERPRETED=INTERPRETED,
        num_stages=tile.num_stages,
        num_warps=tile.num_warps,
    )


# One code for any number of rows: special code for 1 or multiples of 16 could sum differently.
@triton.jit(do_not_specialize=["num_tokens"])
def _head_matmul(
    x,
    weights,
    product,
    num_tokens,
    num_outputs,
    num_inputs,
    x_stride,
    x_head_stride,
    product_stride,
    product_head_stride,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    IS_WHOLE: tl.constexpr,
    INTERPRETED: tl.constexpr,
):
    # int64: tokens and heads times their length may pass 2**31.
    head = tl.program_id(2).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    depths = tl.arange(0, DEPTH)
    is_row, is_column = rows[:, None] < num_tokens, columns[:, None] < num_outputs
    lefts = x + head * x_head_stride + rows[:, None] * x_stride + depths[None, :]
    rights = weights + (head * num_outputs + columns[:, None]) * num_inputs + depths[None, :]
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    sums = add_products(
        sums, lefts, rights, is_row, is_column, depths, num_inputs, DEPTH, IS_WHOLE, INTERPRETED
    )
    target = product + head * product_head_stride + rows[:, None] * product_stride
    tl.store(
        target + columns[None, :],
        sums.to(product.dtype.element_ty),
        mask=is_row & (columns[None, :] < num_outputs),
    )
