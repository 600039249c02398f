"""Cuts the inputs of a matrix into slices, whose products are summed by one tree.

Slices are the same whichever ranks have them, so the bits of a sum do not depend on the number of
ranks (docs/adr/0062-ordered-sums.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pagewire_shared.errors import StartupError
from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.cpu_kernels.packing import Part
from pagewire_worker.families.plan import LinearSpec


class SliceParts(NamedTuple):
    """The parts of one slice; biases belong to the first."""

    weights: Sequence[Part]
    biases: Sequence[Part]


@dataclass(frozen=True, slots=True)
class InputSlices:
    """Slices of matrices.

    Attributes:
        total: Of a whole matrix.
        own: Of the part of it that this rank has.
    """

    total: int = 1
    own: int = 1

    def of(
        self, spec: LinearSpec, weights: Sequence[Part], biases: Sequence[Part]
    ) -> list[SliceParts]:
        """Cut a matrix of codes or values. Raises StartupError naming the tensor."""
        if self.total == 1:
            return [SliceParts(weights, biases)]
        size = spec.num_inputs // self.own
        return [
            SliceParts(
                [_inputs(spec, one, first, first + size) for one in weights],
                () if first else biases,
            )
            for first in range(0, spec.num_inputs, size)
        ]


WHOLE_INPUTS: Final = InputSlices()


def _inputs(spec: LinearSpec, part: Part, first: int, last: int) -> Part:
    """Return the inputs [first, last) of a part."""
    rows = part.rows
    if not isinstance(rows, CodedMatrix):
        return replace(part, rows=rows[:, first:last])
    reason = rows.why_no_inputs(first, last)
    if reason is not None:
        names = ", ".join(f"{name}.weight" for name, _ in spec.parts)
        raise StartupError(
            f"--sum-slices: tensor {names} cannot be sliced: {reason}", field="sum_slices"
        )
    return replace(part, rows=rows.inputs(first, last))
