"""A matrix of small integers with a scale for each group of inputs, as its format stores it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import torch
from torch import Tensor

from pagewire_worker.checkpoint.grouped import dequantized

SCALE_TYPES: Final = (torch.float32, torch.bfloat16, torch.float16)


class Offset(StrEnum):
    """What the offset of a group changes."""

    ZERO_POINT = "zero point"
    """It is subtracted from codes, before they are scaled."""
    MINIMUM = "minimum"
    """It is added to scaled codes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedMatrix:
    """Codes, and what they stand for: (code - zero point) * scale, or code * scale + minimum.

    Attributes:
        codes: [outputs, inputs]: int8 numbers, or uint8 places in `table`.
        table: float32 [16], the values of codes of 4 bits; None for codes of 8 bits.
        scales: [outputs, groups], one of SCALE_TYPES; groups are of equal size.
        offsets: Of the type and shape of `scales`, or None.
        offset: The kind of `offsets`.
    """

    codes: Tensor
    table: Tensor | None
    scales: Tensor
    offsets: Tensor | None = None
    offset: Offset = Offset.ZERO_POINT

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.codes.shape[1] // self.scales.shape[1]

    def select(self, rows: Callable[[Tensor], Tensor]) -> "CodedMatrix":
        """Return a matrix of some rows; `rows` gives them for tensors of any type."""
        offsets = None if self.offsets is None else rows(self.offsets)
        return replace(self, codes=rows(self.codes), scales=rows(self.scales), offsets=offsets)

    def dense(self) -> Tensor:
        """Return the matrix in float32, [outputs, inputs]."""
        is_minimum = self.offsets is not None and self.offset is Offset.MINIMUM
        zeros = 0.0 if self.offsets is None or is_minimum else self.offsets
        result = dequantized(self.codes, self.scales, zeros, self.group, self.table)
        if is_minimum:
            assert self.offsets is not None
            result += self.offsets.float().repeat_interleave(self.group, dim=1)
        return result


def of_unsigned(codes: Tensor, bits: int, scales: Tensor, zeros: Tensor | None) -> CodedMatrix:
    """Return the matrix of unsigned integers; zero points in the middle of the range are left out.

    Args:
        codes: [outputs, inputs], uint8.
        bits: 8, or at most 4.
        scales: [outputs, groups], one of SCALE_TYPES.
        zeros: Integers of any type, [outputs, groups]; None for the middle of the range.
    """
    middle = 128 if bits == 8 else 8
    if bits == 8:
        # Also codes - 128: the highest bit is the sign.
        codes, table = (codes ^ middle).view(torch.int8), None
    else:
        table = torch.arange(16, dtype=torch.float32) - middle
    if zeros is None or bool((zeros == middle).all()):
        return CodedMatrix(codes=codes, table=table, scales=scales)
    offsets = (zeros.float() - middle).to(scales.dtype)
    return CodedMatrix(codes=codes, table=table, scales=scales, offsets=offsets)
