"""Cuts the tensors of a merged matrix into the rows that fill its panels."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.cpu_kernels.packing import PANEL, Part
from pagewire_worker.families.plan import LinearSpec
from pagewire_worker.models.load_parts import in_order


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPiece:
    """Rows of a tensor of the checkpoint, and the panels that they fill in a merged matrix.

    Attributes:
        tensor: Number of the tensor.
        order: The rows within these, in the order of the panels; None for theirs.
    """

    tensor: int
    rows: slice
    order: Sequence[int] | None
    first_panel: int
    panel_step: int

    def part(self, stored: Tensor | CodedMatrix) -> Part:
        """Return the part of a packed matrix that the piece is, out of its tensor."""
        place = (self.first_panel, self.panel_step)
        if isinstance(stored, CodedMatrix):
            return Part(stored.select(lambda one: in_order(one[self.rows], self.order)), *place)
        return Part(self.values(stored), *place)

    def values(self, stored: Tensor) -> Tensor:
        """Return the rows of the piece out of those of its tensor, in the order of the panels."""
        return in_order(stored[self.rows], self.order)


def matrix_pieces(
    spec: LinearSpec, order: Sequence[int] | None, gate_size: int | None
) -> list[MatrixPiece]:
    """Cut the tensors of a matrix at the end of its gates, if there are any."""
    pieces, begin = [], 0
    for number, (_, size) in enumerate(spec.parts):
        end = begin + size
        cuts = [begin, gate_size, end] if gate_size and begin < gate_size < end else [begin, end]
        for first, last in pairwise(cuts):
            moved = None if order is None else [row - first for row in order[first:last]]
            is_up = gate_size is not None and first >= gate_size
            half = first - gate_size if gate_size is not None and is_up else first
            pieces.append(
                MatrixPiece(
                    tensor=number,
                    rows=slice(first - begin, last - begin),
                    order=moved,
                    first_panel=half // PANEL if gate_size is None else half // PANEL * 2 + is_up,
                    panel_step=1 if gate_size is None else 2,
                )
            )
        begin = end
    return pieces
