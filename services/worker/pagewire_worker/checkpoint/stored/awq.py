"""AWQ: integers of 4 bits with zero points, packed along the outputs.

Layout: WQLinear_GEMM of AutoAWQ (awq/modules/linear/gemm.py). Method: Lin et al., 2023.
"""

from typing import Final

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, of_unsigned
from pagewire_worker.checkpoint.stored.packed_bits import unpacked_columns
from pagewire_worker.checkpoint.stored.parts import StoredTensors, evenly, part

_PACK: Final = 8
_ORDER: Final = (0, 2, 4, 6, 1, 3, 5, 7)
"""Output that each nibble of a word belongs to, the lowest nibble first."""


class AwqFormat:
    """Matrices as AutoAWQ writes them in its version "gemm"."""

    name = "awq"

    def has(self, tensors: StoredTensors, prefix: str) -> bool:
        """Return whether the matrix is stored in this format."""
        return tensors.has(f"{prefix}.qweight")

    def matrix(self, tensors: StoredTensors, prefix: str, shape: tuple[int, int]) -> CodedMatrix:
        """Return the matrix [outputs, inputs]."""
        num_outputs, num_inputs = shape
        num_words = evenly(prefix, num_outputs, _PACK, "outputs in words")
        with (
            part(tensors, f"{prefix}.qweight", (num_inputs, num_words)) as words,
            part(tensors, f"{prefix}.scales") as scales,
            part(tensors, f"{prefix}.qzeros", (len(scales), num_words)) as zeros,
        ):
            evenly(prefix, num_inputs, len(scales), "inputs in groups")
            codes = unpacked_columns(words.T, 4, _ORDER)
            zero_points = unpacked_columns(zeros.T, 4, _ORDER)
            return of_unsigned(codes, 4, scales.T.contiguous(), zero_points)
