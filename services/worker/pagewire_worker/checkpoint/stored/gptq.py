"""GPTQ: integers of 4 or 8 bits, packed along the inputs; inputs may come in any order of groups.

Layout: QuantLinear of AutoGPTQ and GPTQModel (qlinear_cuda_old.py). Method: Frantar et al., 2022.
"""

from typing import Final

from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, of_unsigned
from pagewire_worker.checkpoint.grouped import dequantized, order_by_group, size_if_in_order
from pagewire_worker.checkpoint.stored.packed_bits import WORD, unpacked, unpacked_columns
from pagewire_worker.checkpoint.stored.parts import StoredTensors, evenly, part

PACKS: Final = (4, 8, 16)
"""Weights of a word, for 8, 4 and 2 bits."""


class GptqFormat:
    """Matrices as AutoGPTQ and GPTQModel write them."""

    name = "gptq"

    def __init__(self, *, is_v2: bool) -> None:
        """Create the format.

        Args:
            is_v2: Whether zero points are stored as they are (checkpoint_format "gptq_v2").
        """
        self._is_v2 = is_v2

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in this format."""
        return tensors.has(f"{prefix}.qweight")

    def matrix(
        self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]
    ) -> CodedMatrix | Tensor:
        """Return the matrix [outputs, inputs]: values where groups differ in size, else codes."""
        num_outputs, num_inputs = shape
        # Layers of one model may have different bits, so the tensors say them.
        with part(tensors, f"{prefix}.qweight") as words:
            pack = evenly(prefix, num_inputs, len(words), "inputs in words")
            if pack not in PACKS:
                raise StartupError(
                    f"the tensor {prefix}.qweight has {WORD / pack:g} bits per weight; 2, 4 and 8"
                    " are read",
                    field="model",
                )
        out_words = evenly(prefix, num_outputs, pack, "outputs in words")
        with (
            part(tensors, f"{prefix}.qweight", (num_inputs // pack, num_outputs)) as words,
            part(tensors, f"{prefix}.scales") as scales,
            part(tensors, f"{prefix}.qzeros", (len(scales), out_words)) as packed_zeros,
        ):
            bits = WORD // pack
            codes = unpacked(words.T, bits)
            zero_words = packed_zeros if self._is_v2 else packed_zeros + _ones(bits)
            zeros = unpacked_columns(zero_words.T, bits)
            group_of = self._group_of(tensors, prefix, num_inputs, len(scales))
            if isinstance(group_of, int):
                return of_unsigned(codes, bits, scales.T.contiguous(), zeros)
            order = order_by_group(group_of, len(scales))
            if order is not None:
                return of_unsigned(codes, bits, scales.T.contiguous(), zeros, order)
            return dequantized(codes, scales.T, zeros, group_of)

    def _group_of(
        self, tensors: StoredTensors, prefix: str, num_inputs: int, num_groups: int
    ) -> Tensor | int:
        """Return the size of a group, or the group of each input if they are not in order."""
        name = f"{prefix}.g_idx"
        if not tensors.has(name):
            return evenly(prefix, num_inputs, num_groups, "inputs in groups")
        with part(tensors, name, (num_inputs,)) as groups:
            if int(groups.min()) < 0 or int(groups.max()) >= num_groups:
                raise StartupError(
                    f"the tensor {name} names groups beyond the {num_groups} of its scales",
                    field="model",
                )
            return size_if_in_order(groups, num_groups)


def _ones(bits: int) -> int:
    """Return a word whose integers are all 1.

    The first version of the format stores zero points less one. They are subtracted from whole
    words (convert_gptq_v2_to_v1_format), so that a zero point of 0 borrows from its neighbour.
    """
    return sum(1 << shift for shift in range(0, WORD, bits))
