"""Linear layers over matrices of codes: a device has the packed codes and no copy of the values."""

from typing import Final

import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.triton_kernels.code_matmul import CodeTile, code_matmul
from pagewire_worker.triton_kernels.packed_codes import INNER, PackedCodes, has_packed_form, packed

NAME: Final = f"codes-{INNER}"
"""Part of the numerics fingerprint: the inputs of one product of tensor cores."""


class CodeLinear:
    """The product of triton_kernels/code_matmul.py, with one tile for its whole life."""

    __slots__ = ("_bias", "_codes", "_order", "_tile")

    def __init__(
        self, codes: PackedCodes, bias: Tensor | None, tile: CodeTile, order: Tensor | None = None
    ) -> None:
        """Create the layer; `order` has the input of each column of `codes`, if they are not in
        order."""
        self._codes = codes
        self._bias = bias
        self._tile = tile
        self._order = order

    @classmethod
    def of(
        cls, matrix: CodedMatrix, bias: Tensor | None, device: torch.device, dtype: torch.dtype
    ) -> "CodeLinear | None":
        """Return the layer of a matrix on `device` for inputs of `dtype`.

        None for a matrix that has no packed form.
        """
        if not has_packed_form(matrix):
            return None
        order = None if matrix.order is None else matrix.order.to(device)
        return cls(packed(matrix, device), bias, CodeTile.of(dtype), order)

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        if self._order is not None:
            x = x.index_select(1, self._order)
        return code_matmul(x, self._codes, self._bias, self._tile)
