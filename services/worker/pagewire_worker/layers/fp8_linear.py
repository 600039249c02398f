"""Linear layers over 8-bit floats: weights with a scale per output, made while they are loaded,
and activations with a scale per token, made as they come.

torch._scaled_mm takes scales of rows and columns since torch 2.5: both sides float8_e4m3fn, the
second one in column order, inputs and outputs in multiples of 16, bias of the type that comes out,
which is bfloat16 or float16. The number of rows is free.
"""

import torch
from torch import Tensor

from pagewire_worker.triton_kernels.quantize_rows import quantize_rows

MULTIPLE = 16
"""What torch._scaled_mm wants numbers of inputs and outputs to be multiples of."""

TYPES = (torch.bfloat16, torch.float16)
"""What it gives back with a bias."""


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
        # Partial sums of fewer bits, as other servers have them: rounding to 3 bits before it is
        # the larger error by far, and prompts take half the time.
        product: Tensor = torch.ops.aten._scaled_mm(
            quantized,
            self._weight,
            scale_a=scales,
            scale_b=self._scales,
            bias=self._bias,
            out_dtype=x.dtype,
            use_fast_accum=True,
        )
        return product
