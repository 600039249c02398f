"""Linear layers over int8 (W8A8): weights have a scale per output, activations one per token.

Weights are quantized while they are loaded, unless a checkpoint has them in this form. Activations
are quantized in each call. Sums of integers are exact, so a row does not depend on the batch.
"""

from typing import Final

import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.triton_kernels.quantize_rows import quantize_rows
from pagewire_worker.triton_kernels.tile_matmul import ProductScales, Tile, tile_matmul

NAME: Final = "int8-tile"
"""Part of the numerics fingerprint."""


class Int8Linear:
    """A product of int8, summed in int32 and scaled once."""

    __slots__ = ("_bias", "_scales", "_tile", "_weight")

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        """Create the layer.

        Args:
            weight: int8 [outputs, inputs].
            scales: float32 [outputs, 1].
            bias: [outputs] of the type of the inputs, or None.
        """
        self._weight = weight
        self._scales = scales
        self._bias = bias
        self._tile = Tile.of(torch.int8, len(weight))

    @classmethod
    def quantized(cls, weight: Tensor, bias: Tensor | None) -> "Int8Linear":
        """Return the layer of a weight in floats."""
        return cls(*quantize_rows(weight, torch.int8), bias)

    @classmethod
    def of(
        cls, matrix: CodedMatrix, bias: Tensor | None, device: torch.device, dtype: torch.dtype
    ) -> "Int8Linear | None":
        """Return the layer of codes on `device`; None where they are not int8 with a scale per row.

        Args:
            dtype: Of the inputs, for any of which the layer is the same.
        """
        is_plain = matrix.table is None and matrix.offsets is None
        if not is_plain or matrix.order is not None or matrix.scales.shape[1] != 1:
            return None
        codes, scales = matrix.codes.to(device), matrix.scales.to(device)
        return cls(codes.contiguous(), scales.float().contiguous(), bias)

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        quantized, scales = quantize_rows(x, torch.int8)
        factors = ProductScales(scales, self._scales, x.dtype)
        return tile_matmul(quantized, self._weight, self._bias, self._tile, factors)
