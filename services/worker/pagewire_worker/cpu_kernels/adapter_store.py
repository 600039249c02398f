"""Adapters of all slots in the layout that the kernels read (kernels/products/adapters.h)."""

import ctypes
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from pagewire_worker.adapters.content import AdapterPart, AdapterParts
from pagewire_worker.adapters.targets import AdaptedLinear, AdapterTargets
from pagewire_worker.backend.adapters import AdapterLimits
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import pointer
from pagewire_worker.cpu_kernels.matrix_pieces import MatrixPiece, matrix_pieces
from pagewire_worker.cpu_kernels.packing import PANEL
from pagewire_worker.families.plan import LinearSpec

_NONE: Final = (None, None, 0, 0.0)


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The adapters of one matrix.

    Attributes:
        pieces: The rows of its tensors that fill its panels.
        parts: [slots * tensors].
        structure: Points to them.
    """

    pieces: tuple[MatrixPiece, ...]
    parts: "ctypes.Array[abi.AdapterPartArgs]"
    structure: abi.AdapterArgs


class FusedAdapterStore:
    """Adapters of a model whose layers the kernels compute."""

    def __init__(self, targets: AdapterTargets, limits: AdapterLimits) -> None:
        self._targets = targets
        self._max_rank = limits.max_rank
        self._matrices = [_matrix(linear, limits) for linear in targets.linears]
        # What the structures point to, by slot.
        self._held: dict[int, list[Tensor]] = {}

    @property
    def low_size(self) -> int:
        """Most numbers of a token between both products of a matrix."""
        most = max(len(linear.spec.parts) for linear in self._targets.linears)
        return most * self._max_rank

    def structure(self, spec: LinearSpec) -> abi.AdapterArgs | None:
        """Return the adapters of a matrix; None where adapters may not change it."""
        index = self._targets.index_of(spec)
        return None if index is None else self._matrices[index].structure

    @torch.inference_mode()
    def write(self, slot: int, parts: AdapterParts) -> None:
        """Replace the adapter of a slot that no step reads."""
        held: list[Tensor] = []
        for index, matrix in enumerate(self._matrices):
            num_parts = matrix.structure.num_parts
            for number in range(num_parts):
                place, part = slot * num_parts + number, parts.get((index, number))
                if part is None:
                    matrix.parts[place] = abi.AdapterPartArgs(*_NONE)
                    continue
                down, up = part.down.contiguous(), _panels(part, matrix.pieces, number)
                held += [down, up]
                matrix.parts[place] = abi.AdapterPartArgs(
                    pointer(down), pointer(up), part.rank, part.scaling
                )
        self._held[slot] = held


def _matrix(linear: AdaptedLinear, limits: AdapterLimits) -> _Matrix:
    spec, num_parts = linear.spec, len(linear.spec.parts)
    pieces = tuple(matrix_pieces(spec, linear.order, linear.gate_size))
    panels = (abi.AdapterPanel * -(-spec.num_outputs // PANEL))()
    taken = [0] * num_parts
    for piece in pieces:
        for number in range(_num_panels(piece)):
            panels[piece.first_panel + number * piece.panel_step] = abi.AdapterPanel(
                piece.tensor, taken[piece.tensor] + number
            )
        taken[piece.tensor] += _num_panels(piece)
    parts = (abi.AdapterPartArgs * (limits.num_slots * num_parts))()
    structure = abi.AdapterArgs(parts, panels, num_parts, limits.max_rank, spec.num_inputs)
    return _Matrix(pieces, parts, structure)


def _num_panels(piece: MatrixPiece) -> int:
    num_rows: int = piece.rows.stop - piece.rows.start
    return -(-num_rows // PANEL)


def _panels(part: AdapterPart, pieces: tuple[MatrixPiece, ...], tensor: int) -> Tensor:
    """Return `up` of a tensor as panels [panels, rank, 16]."""
    rows = []
    for piece in (one for one in pieces if one.tensor == tensor):
        values = piece.values(part.up)
        rows.append(functional.pad(values, (0, 0, 0, -len(values) % PANEL)))
    return torch.cat(rows).view(-1, PANEL, part.rank).transpose(1, 2).contiguous()
