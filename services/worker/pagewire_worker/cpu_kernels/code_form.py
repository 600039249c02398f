"""Says in which form the kernels read a matrix of codes, if they multiply with codes at all."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import SCALE_TYPES, CodedMatrix, Offset
from pagewire_worker.checkpoint.stored.float8 import E4M3
from pagewire_worker.cpu_kernels import abi

GROUP_STEP: Final = 16
"""Inputs of a group are a multiple of this."""

_SCALES: Final = dict(
    zip(SCALE_TYPES, (abi.SCALE_FLOAT32, abi.SCALE_BFLOAT16, abi.SCALE_FLOAT16), strict=True)
)
_OFFSETS: Final = {Offset.ZERO_POINT: abi.ZERO_POINTS, Offset.MINIMUM: abi.MINIMA}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeForm:
    """Facts that all rows of a packed matrix of codes share.

    Attributes:
        kind: CODES8, CODES4 or FLOATS8 of abi.
        group: Inputs that share a scale.
        scale_type, offset_kind: As in abi.
        factor_groups: Groups that share a factor of their scales; 0 for none.
        table: The values of codes that are no numbers; empty for these.
        order: The input of each column of codes, as int32; empty where columns are in order. Bytes,
            since forms are compared.
    """

    kind: int
    group: int
    scale_type: int
    offset_kind: int
    table: tuple[float, ...]
    order: bytes = b""
    factor_groups: int = 0

    def table_tensor(self) -> Tensor | None:
        """Return the table for the kernels, float32 [16] or [256]."""
        return torch.tensor(self.table, dtype=torch.float32) if self.table else None

    def order_tensor(self) -> Tensor | None:
        """Return the order for the kernels, int32 [inputs]."""
        # A copy, since torch takes no bytes that cannot be written.
        return torch.frombuffer(bytearray(self.order), dtype=torch.int32) if self.order else None


def form_of(matrix: CodedMatrix) -> CodeForm | None:
    """Return the form of a matrix; None where the kernels have to read its values instead."""
    if matrix.group % GROUP_STEP:
        return None
    order = b"" if matrix.order is None else matrix.order.int().numpy().tobytes()
    kind = abi.CODES8 if matrix.bits == 8 else abi.CODES4
    if matrix.table is not None and matrix.bits == 8:
        if not torch.equal(matrix.table, E4M3):
            return None
        kind = abi.FLOATS8
    is_plain, factored = matrix.offsets is None, matrix.factored
    return CodeForm(
        kind=kind,
        group=matrix.group,
        scale_type=_SCALES[matrix.scales.dtype] if factored is None else abi.SCALE_INT8,
        offset_kind=abi.NO_OFFSETS if is_plain else _OFFSETS[matrix.offset],
        table=() if matrix.table is None else tuple(matrix.table.tolist()),
        order=order,
        factor_groups=0 if factored is None else factored.groups,
    )


def equal_runs(parts: Sequence[Tensor | CodedMatrix]) -> list[slice]:
    """Cut `parts` so that those of a run have a form in common, or none of them has one."""
    runs, begin = [], 0
    for end in range(1, len(parts) + 1):
        if end < len(parts) and _are_alike(parts[begin : end + 1]):
            continue
        runs.append(slice(begin, end))
        begin = end
    return runs


def _are_alike(parts: Sequence[Tensor | CodedMatrix]) -> bool:
    forms = [form_of(part) if isinstance(part, CodedMatrix) else None for part in parts]
    return common_form(parts) is not None or not any(forms)


def common_form(parts: Iterable[Tensor | CodedMatrix]) -> CodeForm | None:
    """Return the form of a matrix that is made of `parts`; None if they do not have one in common.

    Parts without offsets have offsets of 0 beside parts with them.
    """
    forms = {form_of(part) if isinstance(part, CodedMatrix) else None for part in parts}
    known = [form for form in forms if form is not None]
    kinds = {form.offset_kind for form in known} - {abi.NO_OFFSETS}
    kind = next(iter(kinds), abi.NO_OFFSETS)
    merged = {replace(form, offset_kind=kind) for form in known}
    is_common = len(known) == len(forms) and len(kinds) <= 1 and len(merged) == 1
    return merged.pop() if is_common else None
