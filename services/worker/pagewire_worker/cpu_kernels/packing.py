"""Packs weights into the layout that the kernels read, in one block of memory."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.library import TYPES, KernelPool, load_library, pointer

PANEL = 16
"""Number of outputs that are stored together."""

GROUPS = (128, 64, 32, 16)
"""Inputs that share a scale in an int4 matrix: the largest of these that divides a row."""

_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """Rows [rows, inputs] of a matrix that come from one tensor.

    Attributes:
        rows: As the checkpoint stores them.
        first_panel, panel_step: The panels of the rows: first_panel, first_panel + panel_step, ...
    """

    rows: Tensor
    first_panel: int = 0
    panel_step: int = 1


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of a matrix of some shape.

    Attributes:
        kind: FLOAT32, BFLOAT16, INT8 or INT4 of abi.
        num_outputs: A multiple of PANEL; rows beyond the matrix are zeros.
    """

    kind: int
    num_outputs: int
    num_inputs: int

    @classmethod
    def of(cls, kind: int, num_outputs: int, num_inputs: int) -> "Storage":
        """Return the storage of a matrix with `num_outputs` rows."""
        return cls(kind, -(-num_outputs // PANEL) * PANEL, num_inputs)

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        if self.kind != abi.INT4:
            return self.num_inputs
        return next(size for size in GROUPS if self.num_inputs % size == 0)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights, rounded up to whole pages."""
        found: int = load_library().pw_weight_bytes(self.structure())
        return -(-found // _PAGE) * _PAGE

    @property
    def quantized_row_bytes(self) -> int:
        """Bytes of a quantized row of its input; 0 if inputs are not quantized."""
        found: int = load_library().pw_quantized_row_bytes(self.structure())
        return found

    def structure(
        self,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        scales: Tensor | None = None,
    ) -> abi.LinearArgs:
        """Return the structure for the kernels; valid while the tensors live."""
        return abi.LinearArgs(
            pointer(weight),
            pointer(bias),
            pointer(scales),
            self.kind,
            self.group,
            self.num_outputs,
            self.num_inputs,
        )


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """y = x W^T + bias, packed.

    Attributes:
        weight: Bytes, in panels.
        bias: [outputs] float32, in the order of the panels, or None.
        scales: [outputs] float32 of an int8 matrix, in the order of the panels; else None.
    """

    storage: Storage
    weight: Tensor
    bias: Tensor | None
    scales: Tensor | None

    def structure(self) -> abi.LinearArgs:
        """Return the structure for the kernels; valid while this object lives."""
        return self.storage.structure(self.weight, self.bias, self.scales)


class WeightArena:
    """Memory for packed matrices, in pages as large as the system provides.

    Args:
        num_bytes: Bytes of all matrices.
    """

    def __init__(self, num_bytes: int) -> None:
        # Shared memory, the default of mmap, gets no large pages.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, num_bytes, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._used = 0

    def take(self, storage: Storage) -> Tensor:
        """Return memory for a matrix."""
        begin, self._used = self._used, self._used + storage.num_bytes
        return self._bytes[begin : self._used]


def pack(
    pool: KernelPool,
    arena: WeightArena,
    storage: Storage,
    parts: Sequence[Part],
    biases: Sequence[Part] = (),
) -> PackedWeights:
    """Return a matrix made of `parts`; every panel belongs to one part.

    Args:
        parts: Weights [rows, inputs], float32, bfloat16 or any type that torch converts.
        biases: Biases [rows] if there are any, placed like the weights.
    """
    scales = torch.zeros(storage.num_outputs) if storage.kind == abi.INT8 else None
    packed = PackedWeights(storage, arena.take(storage), _pack_biases(storage, biases), scales)
    structure = packed.structure()
    for part in parts:
        rows = part.rows if part.rows.dtype in TYPES else part.rows.float()
        rows = rows.contiguous()
        pool.pack(
            structure,
            TYPES[rows.dtype],
            pointer(rows),
            len(rows),
            part.first_panel,
            part.panel_step,
        )
    return packed


def _pack_biases(storage: Storage, biases: Sequence[Part]) -> Tensor | None:
    if not biases:
        return None
    bias = torch.zeros(storage.num_outputs, dtype=torch.float32)
    for part in biases:
        panels = bias.view(-1, PANEL)[part.first_panel :: part.panel_step]
        filled = panels.reshape(-1)
        filled[: len(part.rows)] = part.rows.float()
        panels[: len(panels)] = filled.view(-1, PANEL)
    return bias
