"""Quantizes rows of a matrix to 8-bit floats (float8_e4m3fn), each with a scale.

Rows are activations of a token or weights of an output (Micikevicius et al., "FP8 Formats for Deep
Learning", 2022).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pagewire_worker.triton_kernels.rotary_kv_write import FP8_MAX

LEAST_LARGEST = 2.0**-100
"""A row whose largest number is smaller gets the scale of this number, so that a row of zeros
divides by no zero."""

_FP8_MAX = tl.constexpr(FP8_MAX)
_LEAST_LARGEST = tl.constexpr(LEAST_LARGEST)
_MAX_BLOCK = 8192
_ELEMENTS_PER_WARP = 512  # 16 a lane: two loads of 16 bytes in a type of 2 bytes
_MAX_WARPS = 16


def quantize_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return `x` in 8-bit floats, [rows, size], and their factors, float32 [rows, 1].

    The largest number of a row becomes 448, the largest of the type. NaN stays NaN.

    Args:
        x: [rows, size], float32, float16 or bfloat16. Rows are contiguous.
    """
    assert x.stride(1) == 1
    num_rows, size = x.shape
    quantized = torch.empty((num_rows, size), dtype=torch.float8_e4m3fn, device=x.device)
    scales = torch.empty((num_rows, 1), dtype=torch.float32, device=x.device)
    block = min(triton.next_power_of_2(size), _MAX_BLOCK)
    _quantize_rows[(num_rows,)](
        x,
        quantized,
        scales,
        x.stride(0),
        SIZE=size,
        BLOCK=block,
        num_warps=min(max(block // _ELEMENTS_PER_WARP, 1), _MAX_WARPS),
    )
    return quantized, scales


@triton.jit
def _quantize_rows(x, quantized, scales, x_stride, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    # int64: rows times their length may pass 2**31.
    row = tl.program_id(0).to(tl.int64)
    source, target = x + row * x_stride, quantized + row * SIZE
    columns = tl.arange(0, BLOCK)
    largest = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, SIZE, BLOCK):
        numbers = tl.load(source + begin + columns, mask=columns < SIZE - begin, other=0.0)
        largest = tl.maximum(largest, tl.abs(numbers.to(tl.float32)))
    scale = tl.maximum(tl.max(largest, axis=0), _LEAST_LARGEST) / _FP8_MAX
    tl.store(scales + row, scale)
    # NaN stays NaN: an earlier fault must stay visible.
    nan: tl.constexpr = tl.PropagateNan.ALL
    for begin in range(0, SIZE, BLOCK):
        is_inside = columns < SIZE - begin
        numbers = tl.load(source + begin + columns, mask=is_inside, other=0.0).to(tl.float32)
        scaled = tl.clamp(numbers / scale, -_FP8_MAX, _FP8_MAX, propagate_nan=nan)
        tl.store(target + begin + columns, scaled.to(quantized.dtype.element_ty), mask=is_inside)
