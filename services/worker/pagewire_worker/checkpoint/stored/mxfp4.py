"""MXFP4: floats of 4 bits whose groups of 32 inputs share a power of 2.

Layout: integrations/mxfp4.py of transformers. Numbers: e2m1 and e8m0 of OCP Microscaling Formats
(MX) 1.0, 2023.
"""

from typing import Final

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.stored.packed_bits import unpacked
from pagewire_worker.checkpoint.stored.parts import StoredTensors, evenly, part

_GROUP: Final = 32
_SIZES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TABLE: Final = (*_SIZES, *(-size for size in _SIZES))
"""Values of the codes, e2m1."""
_EXPONENT_OF_ONE: Final = 127


class Mxfp4Format:
    """Matrices as gpt-oss is published with them."""

    name = "mxfp4"

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in this format."""
        return tensors.has(f"{prefix}.blocks")

    def matrix(self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]) -> CodedMatrix:
        """Return the matrix [outputs, inputs]; bfloat16 has its scales exactly."""
        groups = (shape[0], evenly(prefix, shape[1], _GROUP, "inputs in groups"))
        with (
            part(tensors, f"{prefix}.blocks", (*groups, _GROUP // 2)) as blocks,
            part(tensors, f"{prefix}.scales", groups) as exponents,
        ):
            _check_bytes(f"{prefix}.blocks", blocks)
            _check_bytes(f"{prefix}.scales", exponents)
            # The first of two values is in the low half.
            codes = unpacked(blocks.flatten(1), 4)
            scales = powers(exponents)
        return CodedMatrix(codes=codes, table=torch.tensor(TABLE), scales=scales)


def powers(exponents: Tensor) -> Tensor:
    """Return what e8m0 stands for, in bfloat16."""
    whole = torch.ldexp(torch.ones(exponents.shape), exponents.int() - _EXPONENT_OF_ONE)
    return whole.to(torch.bfloat16)


def _check_bytes(name: str, tensor: Tensor) -> None:
    if tensor.dtype != torch.uint8:
        raise StartupError(
            f"the tensor {name} has type {tensor.dtype}, MXFP4 asks for bytes", field="model"
        )
