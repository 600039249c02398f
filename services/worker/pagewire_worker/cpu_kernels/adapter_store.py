"""Adapters of all slots in the layout that the kernels read (kernels/products/adapters.h)."""

import ctypes
from collections.abc import Sequence
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
class _Layout:
    """Where the outputs of a matrix lie; those of the experts of a layer have one.

    Attributes:
        pieces: The rows of its tensors that fill its panels.
        panels: The tensor of each panel, and its number there.
    """

    pieces: tuple[MatrixPiece, ...]
    panels: "ctypes.Array[abi.AdapterPanel]"


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The adapters of one matrix.

    Attributes:
        parts: [slots * tensors].
        structure: Points to them.
    """

    layout: _Layout
    parts: "ctypes.Array[abi.AdapterPartArgs]"
    structure: abi.AdapterArgs


class FusedAdapterStore:
    """Adapters of a model whose layers the kernels compute."""

    def __init__(self, targets: AdapterTargets, limits: AdapterLimits) -> None:
        self._targets = targets
        self._max_rank = limits.max_rank
        layouts: dict[object, _Layout] = {}
        self._matrices: list[_Matrix] = []
        for linear in targets.linears:
            key = (linear.bounds, linear.order, linear.gate_size)
            if key not in layouts:
                layouts[key] = _layout(linear)
            self._matrices.append(_matrix(linear.spec, layouts[key], limits))
        # What the structures point to, by slot.
        self._held: dict[int, list[Tensor]] = {}

    @property
    def low_size(self) -> int:
        """Most numbers of a token between both products of a matrix."""
        most = max(len(linear.spec.parts) for linear in self._targets.linears)
        return most * self._max_rank

    def structures(self, specs: Sequence[LinearSpec]) -> "ctypes.Array[abi.AdapterArgs] | None":
        """Return the adapters of matrices, one behind the other; valid while this object lives.

        None where adapters may not change them.
        """
        found = [self._targets.index_of(spec) for spec in specs]
        known = [self._matrices[index].structure for index in found if index is not None]
        return (abi.AdapterArgs * len(known))(*known) if len(known) == len(found) else None

    @property
    def embedding(self) -> abi.AdapterArgs:
        """The adapters of the embedding; valid while this object lives."""
        return self._structure(self._targets.embedding)

    @property
    def output(self) -> abi.AdapterArgs:
        """The adapters of the matrix for logits; valid while this object lives."""
        return self._structure(self._targets.output)

    def _structure(self, linear: AdaptedLinear) -> abi.AdapterArgs:
        return self._matrices[self._targets.linears.index(linear)].structure

    @torch.inference_mode()
    def write(self, slot: int, parts: AdapterParts) -> None:
        """Replace the adapter of a slot that no step reads."""
        held: list[Tensor] = []
        self._held.pop(slot, None)  # its memory is free before more is taken
        for index, (linear, matrix) in enumerate(
            zip(self._targets.linears, self._matrices, strict=True)
        ):
            num_parts = matrix.structure.num_parts
            for number in range(num_parts):
                place, part = slot * num_parts + number, parts.get((index, number))
                if part is None:
                    matrix.parts[place] = abi.AdapterPartArgs(*_NONE)
                    continue
                # Of an embedding, the row of a token id is read at once.
                down = part.down.T if linear.place == "embedding" else part.down
                down, up = down.contiguous(), _panels(part, matrix.layout.pieces, number)
                held += [down, up]
                matrix.parts[place] = abi.AdapterPartArgs(
                    pointer(down), pointer(up), part.rank, part.scaling
                )
        self._held[slot] = held


def _layout(linear: AdaptedLinear) -> _Layout:
    spec = linear.spec
    pieces = tuple(matrix_pieces(spec, linear.order, linear.gate_size))
    panels = (abi.AdapterPanel * -(-spec.num_outputs // PANEL))()
    taken = [0] * len(spec.parts)
    for piece in pieces:
        for number in range(_num_panels(piece)):
            panels[piece.first_panel + number * piece.panel_step] = abi.AdapterPanel(
                piece.tensor, taken[piece.tensor] + number
            )
        taken[piece.tensor] += _num_panels(piece)
    return _Layout(pieces, panels)


def _matrix(spec: LinearSpec, layout: _Layout, limits: AdapterLimits) -> _Matrix:
    num_parts = len(spec.parts)
    parts = (abi.AdapterPartArgs * (limits.num_slots * num_parts))()
    structure = abi.AdapterArgs(parts, layout.panels, num_parts, limits.max_rank, spec.num_inputs)
    return _Matrix(layout, parts, structure)


def _num_panels(piece: MatrixPiece) -> int:
    num_rows: int = piece.rows.stop - piece.rows.start
    return -(-num_rows // PANEL)


def _panels(part: AdapterPart, pieces: tuple[MatrixPiece, ...], tensor: int) -> Tensor:
    """Return `up` of a tensor as panels [panels, rank, 16]."""
    rows = [piece.values(part.up) for piece in pieces if piece.tensor == tensor]
    if any(len(values) % PANEL for values in rows):
        rows = [functional.pad(values, (0, 0, 0, -len(values) % PANEL)) for values in rows]
    all_rows = rows[0] if len(rows) == 1 else torch.cat(rows)
    return all_rows.view(-1, PANEL, part.rank).transpose(1, 2).contiguous()
