"""Residual addition and a norm in one pass: by root mean square (Zhang and Sennrich, 2019), or a
layer norm (Ba et al., 2016)."""

import torch
import triton
import triton.language as tl
from torch import Tensor

_MAX_HIDDEN = 16384
_ELEMENTS_PER_WARP = 256  # 8 a lane: one load of 16 bytes in a type of 2 bytes
_MAX_WARPS = 16


def add_norm(
    x: Tensor | None,
    residual: Tensor,
    weight: Tensor,
    epsilon: float,
    rows: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Add `x` to `residual` in place and return the sum's norm, of the residual's type.

    The norm is that of RmsNorm: computed in float32 from the rounded residual, and rounded before
    the product with the weight, unless the weight is float32. With a bias it is that of LayerNorm,
    rounded once. A row's result depends on no other row.

    Args:
        x: [tokens, hidden]; None to add nothing, as before the first layer. Rows are contiguous.
        residual: [tokens, hidden], at most 16384 wide. Rows are contiguous.
        weight: [hidden], of the type of the residual or float32.
        epsilon: Added to the mean square.
        rows: [n] int64, the rows to normalise, in this order; None for all. Only without `x`.
        bias: [hidden] of a layer norm; None for a norm by root mean square.

    Returns:
        [tokens, hidden], or [n, hidden] for `rows`.
    """
    _check_tensors(x, residual, weight, rows, bias)
    num_rows, hidden = len(residual if rows is None else rows), residual.shape[1]
    normed = torch.empty((num_rows, hidden), dtype=residual.dtype, device=residual.device)
    block = triton.next_power_of_2(hidden)
    _add_norm[(num_rows,)](
        x,
        residual,
        weight,
        bias,
        rows,
        normed,
        0 if x is None else x.stride(0),
        residual.stride(0),
        epsilon,
        HIDDEN=hidden,
        BLOCK=block,
        ROUNDS_LATE=bias is not None or weight.dtype != residual.dtype,
        num_warps=min(max(block // _ELEMENTS_PER_WARP, 1), _MAX_WARPS),
    )
    return normed


def _check_tensors(
    x: Tensor | None, residual: Tensor, weight: Tensor, rows: Tensor | None, bias: Tensor | None
) -> None:
    assert residual.shape[1] <= _MAX_HIDDEN
    assert residual.stride(1) == 1
    for vector in (weight, weight if bias is None else bias):
        assert vector.shape == residual.shape[1:]
        assert vector.dtype in (residual.dtype, torch.float32)
        assert vector.is_contiguous()
    if x is not None:
        assert rows is None
        assert x.shape == residual.shape
        assert x.dtype == residual.dtype
        assert x.stride(1) == 1
    if rows is not None:
        assert rows.dtype == torch.int64
        assert rows.is_contiguous()


@triton.jit
def _add_norm(
    x,
    residual,
    weight,
    bias,
    rows,
    normed,
    x_stride,
    residual_stride,
    epsilon,
    HIDDEN: tl.constexpr,
    BLOCK: tl.constexpr,
    ROUNDS_LATE: tl.constexpr,
):
    # int64: rows times their length may pass 2**31.
    output_row = tl.program_id(0).to(tl.int64)
    row = output_row
    if rows is not None:
        row = tl.load(rows + output_row)
    columns = tl.arange(0, BLOCK)
    is_inside = columns < HIDDEN
    scales = tl.load(weight + columns, mask=is_inside, other=0.0).to(tl.float32)
    sums = residual + row * residual_stride + columns
    wide = tl.load(sums, mask=is_inside, other=0.0).to(tl.float32)
    dtype = residual.dtype.element_ty
    if x is not None:
        added = tl.load(x + row * x_stride + columns, mask=is_inside, other=0.0).to(tl.float32)
        rounded = (wide + added).to(dtype)
        tl.store(sums, rounded, mask=is_inside)
        wide = rounded.to(tl.float32)
    if bias is not None:
        mean = tl.sum(wide, axis=0) / HIDDEN
        wide = tl.where(is_inside, wide - mean, 0.0)
    mean_square = tl.sum(wide * wide, axis=0) / HIDDEN
    unit = wide * tl.rsqrt(mean_square + epsilon)
    if not ROUNDS_LATE:
        unit = unit.to(dtype).to(tl.float32)
    product = unit * scales
    if bias is not None:
        product += tl.load(bias + columns, mask=is_inside, other=0.0).to(tl.float32)
    product = product.to(dtype)
    tl.store(normed + output_row * HIDDEN + columns, product, mask=is_inside)
