"""Floats of 8 bits with a scale for the matrix, for each output, or for each block.

Names: vLLM's Fp8LinearMethod (`weight_scale`), DeepSeek-V3's checkpoint (`weight_scale_inv`, for
blocks of 128 x 128) and compressed-tensors (`weight_scale`). Activations are not quantized here.
"""

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.stored.parts import StoredTensors, part

SCALES = ("weight_scale", "weight_scale_inv")
"""Names of the scales; both are what a stored value is multiplied with."""


class Float8Format:
    """Matrices of float8 (e4m3fn or e5m2)."""

    name = "fp8"

    def __init__(self, block: tuple[int, int] | None) -> None:
        """Create the format. `block`: outputs and inputs that share a scale; None for no blocks."""
        self._block = block

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in this format."""
        return any(tensors.has(f"{prefix}.{name}") for name in SCALES)

    def matrix(self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]) -> Tensor:
        """Return the matrix [outputs, inputs] in float32."""
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
            if self._block is None:
                return weight.float() * scale.float().reshape(-1, 1)
            return weight.float() * _of_blocks(scale.float(), self._block, shape)

    def _scale_shapes(self, shape: tuple[int, int]) -> list[tuple[int, ...]]:
        if self._block is None:
            return [(), (1,), (1, 1), (shape[0],), (shape[0], 1)]
        return [(-(-shape[0] // self._block[0]), -(-shape[1] // self._block[1]))]


def _of_blocks(scales: Tensor, block: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    """Return the scale of each element; the last blocks may be smaller."""
    rows = scales.repeat_interleave(block[0], dim=0)[: shape[0]]
    return torch.repeat_interleave(rows, block[1], dim=1)[:, : shape[1]]
