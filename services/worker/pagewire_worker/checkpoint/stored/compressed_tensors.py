"""compressed-tensors: packed integers, bytes or float8, each with scales.

Layout: compressed_tensors/compressors (pack_quantized.py, naive_quantized.py). Activations are not
quantized here.
"""

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.stored.float8 import Float8Format
from pagewire_worker.checkpoint.stored.grouped import dequantized
from pagewire_worker.checkpoint.stored.packed_bits import WORD, unpacked
from pagewire_worker.checkpoint.stored.parts import StoredTensors, evenly, part

BITS = (4, 8)
"""Bits of packed integers."""
_UNREAD = ("input_scale", "input_zero_point", "output_scale", "output_zero_point")


class CompressedTensorsFormat:
    """Matrices as llm-compressor writes them. What is there says which of the layouts it is."""

    name = "compressed-tensors"

    def __init__(self, block: tuple[int, int] | None) -> None:
        """Create the format.

        Args:
            block: Outputs and inputs of a float8 matrix that share a scale; None for no blocks.
        """
        self._float8 = Float8Format(block)

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in this format."""
        return tensors.has(f"{prefix}.weight_scale")

    def matrix(self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]) -> Tensor:
        """Return the matrix [outputs, inputs] in float32."""
        for name in _UNREAD:
            tensors.ignore(f"{prefix}.{name}")
        if tensors.has(f"{prefix}.weight_packed"):
            return _packed(tensors, prefix, shape)
        with part(tensors, f"{prefix}.weight", shape) as weight:
            if weight.dtype == torch.int8:
                return _integers(tensors, prefix, weight, None)
        return self._float8.matrix(tensors, prefix, shape)


def _packed(tensors: StoredTensors, prefix: str, shape: tuple[int, int]) -> Tensor:
    num_outputs, num_inputs = shape
    with part(tensors, f"{prefix}.weight_shape", (2,)) as said:
        if tuple(said.tolist()) != shape:
            raise StartupError(
                f"the tensor {prefix}.weight_shape says {said.tolist()}, config.json asks for"
                f" {list(shape)}",
                field="model",
            )
    # Layers of one model may have different bits, so the tensors say them.
    widths = {-(-num_inputs * bits // WORD): bits for bits in BITS}
    shapes = [(num_outputs, num_words) for num_words in widths]
    with part(tensors, f"{prefix}.weight_packed", *shapes) as words:
        bits = widths[words.shape[1]]
        codes = unpacked(words, bits, dim=1)[:, :num_inputs].short() - (1 << (bits - 1))
    return _integers(tensors, prefix, codes, bits)


def _integers(tensors: StoredTensors, prefix: str, codes: Tensor, bits: int | None) -> Tensor:
    """Return the matrix of signed integers. `bits` are those of packed zero points, if any."""
    num_outputs, num_inputs = codes.shape
    with part(tensors, f"{prefix}.weight_scale") as stored:
        scales = stored.float()
    if scales.numel() == 1:
        scales = scales.reshape(1, 1).expand(num_outputs, 1)
    if scales.ndim != 2 or len(scales) != num_outputs:
        raise StartupError(
            f"the tensor {prefix}.weight_scale has shape {list(scales.shape)}, the {num_outputs}"
            f" outputs of the matrix ask for [{num_outputs}, groups]",
            field="model",
        )
    group = evenly(prefix, num_inputs, scales.shape[1], "inputs in groups")
    zeros = _zeros(tensors, prefix, scales, bits)
    return dequantized(codes, scales, zeros, _group_of(tensors, prefix, num_inputs, group))


def _zeros(tensors: StoredTensors, prefix: str, scales: Tensor, bits: int | None) -> Tensor | float:
    name = f"{prefix}.weight_zero_point"
    if not tensors.has(name):
        return 0.0
    with part(tensors, name) as stored:
        if stored.dtype != torch.int32 or bits is None:
            return stored.float().reshape(-1, scales.shape[1]).expand_as(scales).clone()
        # Packed along the outputs.
        return unpacked(stored, bits, dim=0)[: len(scales)].float() - (1 << (bits - 1))


def _group_of(tensors: StoredTensors, prefix: str, num_inputs: int, group: int) -> Tensor | int:
    name = f"{prefix}.weight_g_idx"
    if not tensors.has(name):
        return group
    with part(tensors, name, (num_inputs,)) as groups:
        # -1 everywhere: in order.
        if int(groups.min()) < 0:
            return group
        if int(groups.max()) >= num_inputs // group:
            raise StartupError(f"the tensor {name} names groups beyond its scales", field="model")
        return groups.clone()
