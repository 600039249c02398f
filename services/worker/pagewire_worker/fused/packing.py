"""Weights as the kernels read them, in one piece of memory that is allocated once."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.fused import abi
from pagewire_worker.fused.library import TYPES, KernelPool, pointer

PANEL = 16
"""Outputs that are stored together."""

_ALIGNMENT = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """Rows [rows, inputs] of a matrix that come from one tensor.

    Attributes:
        rows: As the checkpoint stores them.
        first_panel, panel_step: The panels they fill: first_panel, first_panel + panel_step, ...
    """

    rows: Tensor
    first_panel: int = 0
    panel_step: int = 1


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """y = x W^T + bias, packed.

    Attributes:
        weight: [padded outputs * inputs], in panels.
        bias: [padded outputs] float32, in the order of the panels, or None.
        num_outputs: A multiple of PANEL; rows that the matrix does not have are zeros.
        num_inputs: Length of a row.
    """

    weight: Tensor
    bias: Tensor | None
    num_outputs: int
    num_inputs: int

    def structure(self) -> abi.Linear:
        """Return it as the kernels take it; valid while this object lives."""
        return abi.Linear(
            pointer(self.weight), pointer(self.bias), self.num_outputs, self.num_inputs
        )


def padded(num_outputs: int) -> int:
    """Return the outputs that are stored for `num_outputs`."""
    return -(-num_outputs // PANEL) * PANEL


class WeightArena:
    """Memory for packed matrices of one type, in pages as large as the system gives.

    Args:
        num_elements: What all matrices take, by `size_of` for each.
        dtype: Of the matrices.
    """

    def __init__(self, num_elements: int, dtype: torch.dtype) -> None:
        # Shared memory, the default of mmap, gets no large pages.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, num_elements * dtype.itemsize, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._elements = torch.frombuffer(self._memory, dtype=dtype)
        self._used = 0

    def take(self, num_outputs: int, num_inputs: int) -> Tensor:
        """Return memory for a matrix with `num_outputs` padded rows."""
        begin, self._used = self._used, self._used + size_of(num_outputs, num_inputs, self._dtype)
        return self._elements[begin : begin + num_outputs * num_inputs]

    @property
    def _dtype(self) -> torch.dtype:
        return self._elements.dtype


def size_of(num_outputs: int, num_inputs: int, dtype: torch.dtype) -> int:
    """Return the elements that a matrix takes in an arena: its own, up to a whole page."""
    per_page = _ALIGNMENT // dtype.itemsize
    return -(-padded(num_outputs) * num_inputs // per_page) * per_page


def pack(
    pool: KernelPool,
    arena: WeightArena,
    parts: Sequence[Part],
    num_outputs: int,
    biases: Sequence[Part] = (),
) -> PackedLinear:
    """Return a matrix of `num_outputs` rows made of `parts`; every panel belongs to one of them.

    Args:
        pool: Does the work.
        arena: Where the matrix goes.
        parts: Weights [rows, inputs], float32, bfloat16 or anything torch converts.
        num_outputs: Rows of all parts together.
        biases: Biases [rows] where there are any, placed as the weights are.
    """
    num_inputs = parts[0].rows.shape[1]
    weight = arena.take(padded(num_outputs), num_inputs)
    for part in parts:
        rows = part.rows if part.rows.dtype in TYPES else part.rows.float()
        pool.pack(
            TYPES[weight.dtype],
            TYPES[rows.dtype],
            pointer(rows.contiguous()),
            len(rows),
            num_inputs,
            pointer(weight),
            part.first_panel,
            part.panel_step,
        )
    bias = None
    if biases:
        bias = torch.zeros(padded(num_outputs), dtype=torch.float32)
        for part in biases:
            panels = bias.view(-1, PANEL)[part.first_panel :: part.panel_step]
            filled = panels.reshape(-1)
            filled[: len(part.rows)] = part.rows.float()
            panels[: len(panels)] = filled.view(-1, PANEL)
    return PackedLinear(weight, bias, padded(num_outputs), num_inputs)
