"""A matrix of codes of 4 or 8 bits as the kernel of code_matmul.py reads it.

A word of 32 bits has codes of one output, at inputs that lie INNER apart. INNER words are a slab.
So the codes at one place in the words of a slab are those of INNER inputs in a row, and no code
moves between threads when it is widened.
"""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, Offset

INNER: Final = 16
"""Inputs that are multiplied at a time: the depth of one instruction of tensor cores."""

_WORD_BITS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCodes:
    """A matrix [outputs, inputs] on the device of its tensors.

    Attributes:
        words: int32 [outputs, words]; inputs behind the end of the matrix have codes of 0 bits.
        bits: Of a code, 4 or 8.
        num_inputs, group: Inputs, and how many of them share a scale.
        first: Value of the lowest code of 4 bits if the values are numbers in a row; 0 for 8 bits.
        table: float32 [16], values of codes of 4 bits otherwise; else None.
        scales: [groups, outputs], one of SCALE_TYPES.
        offsets: Of the type and shape of `scales`, or None.
        offset: The kind of `offsets`.
    """

    words: Tensor
    bits: int
    num_inputs: int
    group: int
    first: int
    table: Tensor | None
    scales: Tensor
    offsets: Tensor | None
    offset: Offset

    @property
    def slab(self) -> int:
        """Inputs of a slab."""
        return _slab(self.bits)

    @property
    def num_products(self) -> int:
        """Products of INNER inputs that are summed before they are scaled."""
        if self.group == self.num_inputs:
            return self.slab // INNER
        return min(self.slab, self.group) // INNER

    @property
    def num_bytes(self) -> int:
        """Bytes on the device."""
        tensors = (self.words, self.table, self.scales, self.offsets)
        return sum(one.nbytes for one in tensors if one is not None)


def has_packed_form(matrix: CodedMatrix) -> bool:
    """Return whether the groups of a matrix are whole products, and slabs whole groups or parts."""
    slab = _slab(8 if matrix.table is None else 4)
    if matrix.scales.shape[1] == 1:
        return matrix.codes.shape[1] >= INNER
    group = matrix.group
    return group % INNER == 0 and (slab % group == 0 or group % slab == 0)


def packed(matrix: CodedMatrix, device: torch.device) -> PackedCodes:
    """Return a matrix that has a packed form, on `device`."""
    bits = 8 if matrix.table is None else 4
    first = 0 if matrix.table is None else _first_of_row(matrix.table)
    return PackedCodes(
        words=_words(matrix.codes.to(device), bits),
        bits=bits,
        num_inputs=matrix.codes.shape[1],
        group=matrix.group,
        first=0 if first is None else first,
        table=matrix.table.to(device) if matrix.table is not None and first is None else None,
        scales=matrix.scales.to(device).T.contiguous(),
        offsets=None if matrix.offsets is None else matrix.offsets.to(device).T.contiguous(),
        offset=matrix.offset,
    )


def _slab(bits: int) -> int:
    return INNER * (_WORD_BITS // bits)


def _first_of_row(table: Tensor) -> int | None:
    """Return the first of 16 whole numbers in a row; None for other values."""
    first = int(table[0])
    return first if torch.equal(table, torch.arange(first, first + 16).to(table)) else None


def _words(codes: Tensor, bits: int) -> Tensor:
    """Return int32 [outputs, words] of codes [outputs, inputs] of 8 bits each."""
    num_outputs, num_inputs = codes.shape
    codes = functional.pad(codes.contiguous().view(torch.uint8), (0, -num_inputs % _slab(bits)))
    slabs = codes.view(num_outputs, -1, _WORD_BITS // bits, INNER)
    words = torch.zeros_like(slabs[:, :, 0], dtype=torch.int32)
    for place in range(_WORD_BITS // bits):
        words |= slabs[:, :, place].to(torch.int32) << place * bits
    return words.flatten(1)
