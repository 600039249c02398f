"""compressed-tensors: packed integers, bytes or float8, each with scales.

Layout: compressed_tensors/compressors (pack_quantized.py, naive_quantized.py). Activations are not
quantized here.
"""

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import (
    SCALE_TYPES,
    CodedMatrix,
    of_unsigned,
)
from pagewire_worker.checkpoint.grouped import dequantized, order_by_group, size_if_in_order
from pagewire_worker.checkpoint.stored.float8 import Float8Format
from pagewire_worker.checkpoint.stored.packed_bits import WORD, unpacked, unpacked_columns
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

    def matrix(
        self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]
    ) -> CodedMatrix | Tensor:
        """Return the matrix [outputs, inputs]: codes, or values of floats and uneven groups."""
        for name in _UNREAD:
            tensors.ignore(f"{prefix}.{name}")
        if tensors.has(f"{prefix}.weight_packed"):
            return _packed(tensors, prefix, shape)
        with part(tensors, f"{prefix}.weight", shape) as weight:
            if weight.dtype == torch.int8:
                return _integers(tensors, prefix, weight.view(torch.uint8) ^ 128, 8, False)
        return self._float8.matrix(tensors, prefix, shape)


def _packed(tensors: StoredTensors, prefix: str, shape: tuple[int, int]) -> CodedMatrix | Tensor:
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
        codes = unpacked(words, bits)[:, :num_inputs].contiguous()
    return _integers(tensors, prefix, codes, bits, True)


def _integers(
    tensors: StoredTensors, prefix: str, codes: Tensor, bits: int, is_packed: bool
) -> CodedMatrix | Tensor:
    """Return the matrix of integers, each stored plus half of its range.

    Args:
        codes: [outputs, inputs], uint8.
        is_packed: Whether zero points are packed like the codes, if there are any.
    """
    num_outputs, num_inputs = codes.shape
    with part(tensors, f"{prefix}.weight_scale") as stored:
        scales = stored.clone() if stored.dtype in SCALE_TYPES else stored.float()
    if scales.numel() == 1:
        scales = scales.reshape(1, 1).expand(num_outputs, 1).contiguous()
    if scales.ndim != 2 or len(scales) != num_outputs:
        raise StartupError(
            f"the tensor {prefix}.weight_scale has shape {list(scales.shape)}, the {num_outputs}"
            f" outputs of the matrix ask for [{num_outputs}, groups]",
            field="model",
        )
    group = evenly(prefix, num_inputs, scales.shape[1], "inputs in groups")
    zeros = _zeros(tensors, prefix, scales, bits, is_packed)
    group_of = _group_of(tensors, prefix, num_inputs, group)
    if isinstance(group_of, int):
        return of_unsigned(codes, bits, scales, zeros)
    order = order_by_group(group_of, scales.shape[1])
    if order is not None:
        return of_unsigned(codes, bits, scales, zeros, order)
    middle = float(1 << (bits - 1))
    return dequantized(codes, scales, middle if zeros is None else zeros, group_of)


def _zeros(
    tensors: StoredTensors, prefix: str, scales: Tensor, bits: int, is_packed: bool
) -> Tensor | None:
    """Return the zero points of unsigned codes in float32, or None without any."""
    name = f"{prefix}.weight_zero_point"
    if not tensors.has(name):
        return None
    with part(tensors, name) as stored:
        if stored.dtype == torch.int32 and is_packed:
            # Packed along the outputs.
            return unpacked_columns(stored, bits)[: len(scales)].float()
        signed = stored.float().reshape(-1, scales.shape[1]).expand_as(scales)
        return signed + float(1 << (bits - 1))


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
        return size_if_in_order(groups, num_inputs // group)
