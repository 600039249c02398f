"""Floats of 8 bits with a scale for the matrix, for each output, or for each block.

Names: vLLM's Fp8LinearMethod (`weight_scale`), DeepSeek-V3's checkpoint (`weight_scale_inv`, for
blocks of 128 x 128) and compressed-tensors (`weight_scale`). Activations are not quantized here.
"""

from typing import Final

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.checkpoint.stored.parts import StoredTensors, part

SCALES = ("weight_scale", "weight_scale_inv")
"""Names of the scales; both are what a stored value is multiplied with."""

E4M3: Final = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float().nan_to_num(0.0)
"""Values of e4m3fn by their bits; 0 for the two that are no number: no matrix of codes has them."""

_NO_NUMBER: Final = 0x7F
"""Bits of e4m3fn below the sign that are no number."""


class Float8Format:
    """Matrices of float8 (e4m3fn or e5m2)."""

    name = "fp8"

    def __init__(self, block: tuple[int, int] | None) -> None:
        """Create the format. `block`: outputs and inputs that share a scale; None for no blocks."""
        self._block = block

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in this format."""
        return any(tensors.has(f"{prefix}.{name}") for name in SCALES)

    def matrix(
        self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]
    ) -> CodedMatrix | Tensor:
        """Return the matrix [outputs, inputs]: codes of e4m3fn, or values in float32.

        Codes have a scale for each output and block of inputs. Matrices whose last block of inputs
        is smaller, or with elements that are no number, are values, as those of e5m2 are.
        """
        name = next(f"{prefix}.{one}" for one in SCALES if tensors.has(f"{prefix}.{one}"))
        tensors.ignore(f"{prefix}.input_scale")
        tensors.ignore(f"{prefix}.input_scale_ub")
        tensors.ignore(f"{prefix}.activation_scale")
        with (
            part(tensors, f"{prefix}.weight", shape) as weight,
            part(tensors, name, *self._scale_shapes(shape)) as scale,
        ):
            if weight.dtype.itemsize != 1 or not weight.dtype.is_floating_point:
                raise StartupError(
                    f"the tensor {prefix}.weight has type {weight.dtype}, its scale asks for"
                    " float8",
                    field="model",
                )
            scales, group = scale.float().reshape(-1, 1), shape[1]
            if self._block is not None:
                outputs, group = self._block
                scales = scale.float().repeat_interleave(outputs, dim=0)[: shape[0]]
            scales = scales.expand(shape[0], -1).contiguous()
            if shape[1] % group == 0 and _are_numbers(weight):
                codes = weight.view(torch.uint8).clone()
                return CodedMatrix(codes=codes, table=E4M3, scales=scales)
            return weight.float() * scales.repeat_interleave(group, dim=1)[:, : shape[1]]

    def _scale_shapes(self, shape: tuple[int, int]) -> list[tuple[int, ...]]:
        if self._block is None:
            return [(), (1,), (1, 1), (shape[0],), (shape[0], 1)]
        return [(-(-shape[0] // self._block[0]), -(-shape[1] // self._block[1]))]


def _are_numbers(weight: Tensor) -> bool:
    """Return whether `weight` has e4m3fn, and all of it are numbers."""
    if weight.dtype != torch.float8_e4m3fn:
        return False
    return not bool((weight.view(torch.uint8) & _NO_NUMBER == _NO_NUMBER).any())
