"""Quantizes rows of a matrix to 8-bit floats (float8_e4m3fn) or int8, each with a scale.

Rows are activations of a token or weights of an output (Micikevicius et al., "FP8 Formats for Deep
Learning", 2022).
"""

from typing import Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.rotary_kv_write import FP8_MAX

LEAST_LARGEST = 2.0**-100
"""A row whose largest number is smaller gets the scale of this number, so that a row of zeros
divides by no zero."""

LARGEST: Final = {torch.float8_e4m3fn: FP8_MAX, torch.int8: 127.0}
"""The largest number of each type; int8 has no use for -128, whose opposite it lacks."""

_LEAST_LARGEST = tl.constexpr(LEAST_LARGEST)
_MAX_BLOCK = 8192
_ELEMENTS_PER_WARP = 512  # 16 a lane: two loads of 16 bytes in a type of 2 bytes
_MAX_WARPS = 16


def quantize_rows(x: Tensor, dtype: torch.dtype = torch.float8_e4m3fn) -> tuple[Tensor, Tensor]:
    """Return `x` in 8 bits, [rows, size], and their factors, float32 [rows, 1].

    The largest number of a row becomes the largest of the type. NaN stays NaN in 8-bit floats; in
    int8 the factor of a row that is not finite is NaN.

    Args:
        x: [rows, size], float32, float16 or bfloat16. Rows are contiguous.
        dtype: One of LARGEST.
    """
    assert x.stride(1) == 1
    num_rows, size = x.shape
    quantized = torch.empty((num_rows, size), dtype=dtype, device=x.device)
    scales = torch.empty((num_rows, 1), dtype=torch.float32, device=x.device)
    block = min(triton.next_power_of_2(size), _MAX_BLOCK)
    _quantize_rows[(num_rows,)](
        x,
        quantized,
        scales,
        x.stride(0),
        LARGEST=LARGEST[dtype],
        IS_INTEGER=dtype == torch.int8,
        SIZE=size,
        BLOCK=block,
        num_warps=min(max(block // _ELEMENTS_PER_WARP, 1), _MAX_WARPS),
    )
    return quantized, scales


@triton.jit
def _quantize_rows(
    x,
    quantized,
    scales,
    x_stride,
    LARGEST: tl.constexpr,
    IS_INTEGER: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # int64: rows times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    source, target = x + row * x_stride, quantized + row * SIZE
    columns = tl.arange(0, BLOCK)
    largest, is_finite = tl.zeros([BLOCK], tl.float32), tl.full([BLOCK], 1, tl.int32)
    for begin in range(0, SIZE, BLOCK):
        numbers = tl.load(source + begin + columns, mask=columns < SIZE - begin, other=0.0)
        sizes = tl.abs(numbers.to(tl.float32))
        largest = tl.maximum(largest, sizes)
        is_finite &= (sizes < float("inf")).to(tl.int32)
    scale = tl.maximum(tl.max(largest, axis=0), _LEAST_LARGEST) / LARGEST
    if IS_INTEGER:
        # No integer says that a number is broken, so the factor does.
        tl.store(scales + row, tl.where(tl.min(is_finite, axis=0) > 0, scale, float("nan")))
    else:
        tl.store(scales + row, scale)
    # NaN stays NaN: an earlier fault must stay visible.
    nan: tl.constexpr = tl.PropagateNan.NONE if IS_INTEGER else tl.PropagateNan.ALL
    for begin in range(0, SIZE, BLOCK):
        is_inside = columns < SIZE - begin
        numbers = tl.load(source + begin + columns, mask=is_inside, other=0.0).to(tl.float32)
        scaled = tl.clamp(numbers / scale, -LARGEST, LARGEST, propagate_nan=nan)
        if IS_INTEGER:
            # Beyond 2**23 a float32 has no fraction: the sum is rounded to the nearest.
            scaled = (scaled + 12582912.0) - 12582912.0
        tl.store(target + begin + columns, scaled.to(quantized.dtype.element_ty), mask=is_inside)
