"""A matrix of small integers with a scale for each group of inputs, as its format stores it."""

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True, slots=True)
class FactoredScales:
    """Scales and offsets as products of small integers and factors that several groups share.

    Attributes:
        scales: int8 [outputs, groups].
        scale_factors: float16 [outputs, factors].
        offsets, offset_factors: Of the same types and shapes; both None without offsets.
    """

    scales: Tensor
    scale_factors: Tensor
    offsets: Tensor | None = None
    offset_factors: Tensor | None = None

    @property
    def groups(self) -> int:
        """Groups that share a factor."""
        return self.scales.shape[1] // self.scale_factors.shape[1]

    def select(self, rows: Callable[[Tensor], Tensor]) -> "FactoredScales":
        """Return those of some rows."""
        offsets, factors = (
            None if one is None else rows(one) for one in (self.offsets, self.offset_factors)
        )
        return FactoredScales(rows(self.scales), rows(self.scale_factors), offsets, factors)

    def part(self, groups: slice) -> "FactoredScales | None":
        """Return those of some groups in a row; None if a factor would be cut."""
        if groups.start % self.groups or groups.stop % self.groups:
            return None
        shared = slice(groups.start // self.groups, groups.stop // self.groups)
        own, factors = (self.scales, self.offsets), (self.scale_factors, self.offset_factors)
        scales, offsets = (None if one is None else one[:, groups].contiguous() for one in own)
        scale_factors, offset_factors = (
            None if one is None else one[:, shared].contiguous() for one in factors
        )
        assert scales is not None
        assert scale_factors is not None
        return FactoredScales(scales, scale_factors, offsets, offset_factors)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedMatrix:
    """Codes, and what they stand for: (code - zero point) * scale, or code * scale + minimum.

    Attributes:
        codes: [outputs, inputs]: int8 numbers, or uint8 places in `table`.
        table: float32, the values of codes: [16] of 4 bits, [256] of 8 bits; None for int8.
        scales: [outputs, groups], one of SCALE_TYPES; groups are of equal size.
        offsets: Of the type and shape of `scales`, or None.
        offset: The kind of `offsets`.
        order: The input of each column of codes, [inputs], where a format has its groups in another
            order; else None.
        factored: What `scales` and `offsets` are the products of, without rounding; None if they
            are no products.
    """

    codes: Tensor
    table: Tensor | None
    scales: Tensor
    offsets: Tensor | None = None
    offset: Offset = Offset.ZERO_POINT
    order: Tensor | None = None
    factored: FactoredScales | None = None

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 4 if self.table is not None and len(self.table) == 16 else 8

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        return self.codes.shape[1] // self.scales.shape[1]

    @property
    def has_offsets(self) -> bool:
        """Whether groups have offsets."""
        return self.offsets is not None

    def select(self, rows: Callable[[Tensor], Tensor]) -> "CodedMatrix":
        """Return a matrix of some rows; `rows` gives them for tensors of any type."""
        offsets = None if self.offsets is None else rows(self.offsets)
        factored = None if self.factored is None else self.factored.select(rows)
        codes, scales = rows(self.codes), rows(self.scales)
        return replace(self, codes=codes, scales=scales, offsets=offsets, factored=factored)

    def why_no_inputs(self, first: int, last: int) -> str | None:
        """Return why a matrix of the inputs [first, last) cannot be made; None if it can be."""
        if self.order is not None:
            return "the order of its inputs is not that of the model"
        # One scale for a whole row is that of each of its parts, too.
        is_whole = self.scales.shape[1] == 1
        if not is_whole and (first % self.group or last % self.group):
            return f"its groups of {self.group} inputs would be cut"
        return None

    def inputs(self, first: int, last: int) -> "CodedMatrix":
        """Return a matrix of the inputs [first, last), which are whole groups."""
        groups = slice(first // self.group, -(-last // self.group))
        return replace(
            self,
            codes=self.codes[:, first:last].contiguous(),
            scales=self.scales[:, groups].contiguous(),
            offsets=None if self.offsets is None else self.offsets[:, groups].contiguous(),
            factored=None if self.factored is None else self.factored.part(groups),
        )

    def dense(self) -> Tensor:
        """Return the matrix in float32, [outputs, inputs]."""
        is_minimum = self.offsets is not None and self.offset is Offset.MINIMUM
        zeros = 0.0 if self.offsets is None or is_minimum else self.offsets
        result = dequantized(self.codes, self.scales, zeros, self.group, self.table)
        if is_minimum:
            assert self.offsets is not None
            result += self.offsets.float().repeat_interleave(self.group, dim=1)
        return result if self.order is None else result[:, self.order.argsort()]


def of_unsigned(
    codes: Tensor, bits: int, scales: Tensor, zeros: Tensor | None, order: Tensor | None = None
) -> CodedMatrix:
    """Return the matrix of unsigned integers; zero points in the middle of the range are left out.

    Args:
        codes: [outputs, inputs], uint8.
        bits: 8, or at most 4.
        scales: [outputs, groups], one of SCALE_TYPES.
        zeros: Integers of any type, [outputs, groups]; None for the middle of the range.
        order: The inputs in the order of their groups, if it is not theirs.
    """
    if order is not None:
        codes = codes[:, order]
    middle = 128 if bits == 8 else 8
    if bits == 8:
        # Also codes - 128: the highest bit is the sign.
        codes, table = (codes ^ middle).view(torch.int8), None
    else:
        table = torch.arange(16, dtype=torch.float32) - middle
    if zeros is None or bool((zeros == middle).all()):
        return CodedMatrix(codes=codes, table=table, scales=scales, order=order)
    offsets = (zeros.float() - middle).to(scales.dtype)
    return CodedMatrix(codes=codes, table=table, scales=scales, offsets=offsets, order=order)


def merged(parts: Sequence[CodedMatrix | Tensor]) -> CodedMatrix | None:
    """Return the matrix of the rows of all parts; None for values, or codes of several forms.

    Parts without offsets have offsets of 0 beside parts with them. Scales of several types become
    float32.
    """
    coded = [part for part in parts if isinstance(part, CodedMatrix)]
    first, kinds = coded[0] if coded else None, {part.offset for part in coded if part.has_offsets}
    if first is None or len(coded) < len(parts) or len(kinds) > 1:
        return None
    if len(coded) == 1:
        return first
    if any(part.group != first.group or not _have_one_form(part, first) for part in coded):
        return None
    dtypes = {part.scales.dtype for part in coded}
    dtype = dtypes.pop() if len(dtypes) == 1 else torch.float32
    offsets = [part.scales * 0 if part.offsets is None else part.offsets for part in coded]
    return CodedMatrix(
        codes=torch.cat([part.codes for part in coded]),
        table=first.table,
        scales=torch.cat([part.scales.to(dtype) for part in coded]),
        offsets=torch.cat([one.to(dtype) for one in offsets]) if kinds else None,
        offset=next(iter(kinds), first.offset),
        order=first.order,
    )


def _have_one_form(part: CodedMatrix, other: CodedMatrix) -> bool:
    return _are_equal(part.table, other.table) and _are_equal(part.order, other.order)


def _are_equal(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one, other)
