"""Linear layers over 8-bit floats.

Weights have a scale per output and are quantized while they are loaded. Activations have a scale
per token and are quantized in each call. torch._scaled_mm takes scales of rows and columns since
torch 2.5. Both operands are float8_e4m3fn, the second one in column order. Inputs and outputs are
multiples of 16; the number of rows is free. The result is bfloat16 or float16.
"""

import torch
from torch import Tensor

from pagewire_worker.triton_kernels.quantize_rows import quantize_rows

MULTIPLE = 16
"""torch._scaled_mm takes only multiples of this as numbers of inputs and outputs."""

TYPES = (torch.bfloat16, torch.float16)
"""Types that torch._scaled_mm returns."""


class Fp8Linear:
    """A product of 8-bit floats, summed in float32."""

    __slots__ = ("_bias", "_scales", "_weight")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        quantized, scales = quantize_rows(weight)
        self._weight = quantized.t()
        self._scales = scales.t()
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        quantized, scales = quantize_rows(x)
        # Partial sums have fewer bits, as in other servers. The rounding to 3 bits before is the
        # larger error by far, and prompts take half the time.
        product: Tensor = torch.ops.aten._scaled_mm(
            quantized,
            self._weight,
            scale_a=scales,
            scale_b=self._scales,
            out_dtype=x.dtype,
            use_fast_accum=True,
        )
        # Not part of the product: for one row and 12,288 inputs no kernel of cuBLAS 13.0 has one.
        return product if self._bias is None else product.add_(self._bias)
