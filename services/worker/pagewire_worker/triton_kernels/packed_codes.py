"""A matrix of codes of 4 or 8 bits as the kernels of code_matmul.py and experts read it.

A word of 32 bits has codes of one output, at inputs that lie INNER apart. INNER words are a slab.
So the codes at one place in the words of a slab are those of INNER inputs in a row, and no code
moves between threads when it is widened.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix, Offset
from pagewire_worker.checkpoint.stored.float8 import E4M3
from pagewire_worker.checkpoint.stored.mxfp4 import TABLE

INNER: Final = 16
"""Inputs that are multiplied at a time: the depth of one instruction of tensor cores."""

_WORD_BITS: Final = 32

_FLOATS: Final[Mapping[int, Tensor]] = {4: torch.tensor(TABLE), 8: E4M3}
"""Tables of floats by their bits, e2m1 and e4m3fn: kernels compute their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedCodes:
    """A matrix [outputs, inputs] on the device of its tensors, or a stack of such matrices.

    In a stack, tensors have one more dimension before the others, but for the table.

    Attributes:
        words: int32 [outputs, words]; inputs behind the end of the matrix have codes of 0 bits.
        bits: Of a code, 4 or 8.
        num_inputs, group: Inputs, and how many of them share a scale.
        is_float: Whether codes are those of _FLOATS.
        first: Value of the lowest code of 4 bits if the values are numbers in a row; else 0.
        table: float32 [16], values of codes of 4 bits otherwise; else None.
        scales: [groups, outputs], one of SCALE_TYPES.
        offsets: Of the type and shape of `scales`, or None.
        offset: The kind of `offsets`.
    """

    words: Tensor
    bits: int
    num_inputs: int
    group: int
    is_float: bool
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
    if matrix.bits == 8 and not (matrix.table is None or _is_float(matrix)):
        return False
    slab = _slab(matrix.bits)
    if matrix.scales.shape[1] == 1:
        return matrix.codes.shape[1] >= INNER
    group = matrix.group
    return group % INNER == 0 and (slab % group == 0 or group % slab == 0)


def packed(matrix: CodedMatrix, device: torch.device) -> PackedCodes:
    """Return a matrix that has a packed form, on `device`."""
    bits, is_float = matrix.bits, _is_float(matrix)
    table = None if is_float else matrix.table
    first = 0 if table is None else _first_of_row(table)
    return PackedCodes(
        words=_words(matrix.codes.to(device), bits),
        bits=bits,
        is_float=is_float,
        num_inputs=matrix.codes.shape[1],
        group=matrix.group,
        first=0 if first is None else first,
        table=table.to(device) if table is not None and first is None else None,
        scales=matrix.scales.to(device).T.contiguous(),
        offsets=None if matrix.offsets is None else matrix.offsets.to(device).T.contiguous(),
        offset=matrix.offset,
    )


def packed_stack(
    matrices: Iterable[CodedMatrix | None], count: int, device: torch.device
) -> PackedCodes | None:
    """Return `count` matrices of one shape in one stack on `device`.

    None if a matrix has no packed form, an order of inputs, or another form than the first one.
    Beside matrices with offsets, others have offsets of 0.
    """
    stack: PackedCodes | None = None
    for number, matrix in enumerate(matrices):
        if matrix is None or matrix.order is not None or not has_packed_form(matrix):
            return None
        one = packed(matrix, device)
        if stack is None:
            stack = _stack_like(one, count)
        if one.offsets is not None and stack.offsets is None:
            offsets = torch.zeros_like(stack.scales)
            stack = replace(stack, offsets=offsets, offset=one.offset)
        if not _have_one_form(one, stack):
            return None
        stack.words[number], stack.scales[number] = one.words, one.scales
        if one.offsets is not None and stack.offsets is not None:
            stack.offsets[number] = one.offsets
    return stack


def _stack_like(one: PackedCodes, count: int) -> PackedCodes:
    words, scales = (part.new_empty((count, *part.shape)) for part in (one.words, one.scales))
    return replace(one, words=words, scales=scales, offsets=None)


def _have_one_form(one: PackedCodes, stack: PackedCodes) -> bool:
    facts = [
        (part.bits, part.num_inputs, part.group, part.is_float, part.first, part.scales.dtype)
        for part in (one, stack)
    ]
    if facts[0] != facts[1] or (one.offsets is not None and one.offset is not stack.offset):
        return False
    if one.table is None or stack.table is None:
        return one.table is stack.table
    return torch.equal(one.table, stack.table)


def _is_float(matrix: CodedMatrix) -> bool:
    """Return whether codes are those of _FLOATS."""
    return matrix.table is not None and torch.equal(matrix.table, _FLOATS[matrix.bits])


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
