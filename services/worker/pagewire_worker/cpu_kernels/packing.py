"""Packs weights into the layout that the kernels read, in one block of memory."""

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pagewire_worker.checkpoint.coded_matrix import CodedMatrix
from pagewire_worker.cpu_kernels import abi
from pagewire_worker.cpu_kernels.code_form import CodeForm, common_form
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
        rows: As the checkpoint stores them: values or codes.
        first_panel, panel_step: The panels of the rows: first_panel, first_panel + panel_step, ...
    """

    rows: Tensor | CodedMatrix
    first_panel: int = 0
    panel_step: int = 1

    @property
    def values(self) -> Tensor:
        """The rows in a type of floats."""
        return self.rows.dense() if isinstance(self.rows, CodedMatrix) else self.rows

    @property
    def num_rows(self) -> int:
        """Rows of the part."""
        return len(self.rows.codes if isinstance(self.rows, CodedMatrix) else self.rows)

    @property
    def num_inputs(self) -> int:
        """Columns of the part."""
        rows = self.rows.codes if isinstance(self.rows, CodedMatrix) else self.rows
        return rows.shape[1]

    def in_order(self) -> "Part":
        """Return the part for a product whose input is never put in order: perhaps as values."""
        is_ordered = isinstance(self.rows, CodedMatrix) and self.rows.order is not None
        return replace(self, rows=self.values) if is_ordered else self


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage of a matrix of some shape.

    Attributes:
        kind: One of the storages of abi.
        num_outputs: A multiple of PANEL; rows beyond the matrix are zeros.
        form: Of a matrix of codes; None for others.
    """

    kind: int
    num_outputs: int
    num_inputs: int
    form: CodeForm | None = None

    @classmethod
    def of(cls, kind: int, num_outputs: int, num_inputs: int) -> "Storage":
        """Return the storage of a matrix with `num_outputs` rows."""
        return cls(kind, -(-num_outputs // PANEL) * PANEL, num_inputs)

    @classmethod
    def of_parts(
        cls, kind: int, num_outputs: int, num_inputs: int, parts: "Sequence[Part]"
    ) -> "Storage":
        """Return the storage of a matrix of `parts`: of their codes if all have the same form.

        Args:
            kind: The storage otherwise.
        """
        form = common_form(part.rows for part in parts)
        whole = cls.of(kind if form is None else form.kind, num_outputs, num_inputs)
        return replace(whole, form=form)

    @property
    def group(self) -> int:
        """Inputs that share a scale."""
        if self.form is not None:
            return self.form.group
        if self.kind != abi.INT4:
            return self.num_inputs
        return next(size for size in GROUPS if self.num_inputs % size == 0)

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights, rounded up to whole pages."""
        found: int = load_library().pw_weight_bytes(self.structure())
        return -(-found // _PAGE) * _PAGE

    @property
    def prepared_row_bytes(self) -> int:
        """Bytes of a row of its input that is prepared for the product; 0 for none."""
        order = None if self.form is None else self.form.order_tensor()
        found: int = load_library().pw_prepared_row_bytes(self.structure(order=order))
        return found

    def structure(
        self,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        scales: Tensor | None = None,
        table: Tensor | None = None,
        order: Tensor | None = None,
    ) -> abi.LinearArgs:
        """Return the structure for the kernels; valid while the tensors live."""
        form = self.form
        return abi.LinearArgs(
            pointer(weight),
            pointer(bias),
            pointer(scales),
            pointer(table),
            pointer(order),
            self.kind,
            self.group,
            abi.SCALE_FLOAT32 if form is None else form.scale_type,
            abi.NO_OFFSETS if form is None else form.offset_kind,
            0 if form is None else form.factor_groups,
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
        table: float32 [16] of a matrix of 4-bit codes; else None.
        order: int32 [inputs], the place in x of each input, of codes that are not in order; else
            None.
    """

    storage: Storage
    weight: Tensor
    bias: Tensor | None
    scales: Tensor | None
    table: Tensor | None = None
    order: Tensor | None = None

    def structure(self) -> abi.LinearArgs:
        """Return the structure for the kernels; valid while this object lives."""
        parts = self.weight, self.bias, self.scales, self.table, self.order
        return self.storage.structure(*parts)


class WeightArena:
    """Memory for packed matrices, in pages as large as the system provides.

    Args:
        num_bytes: Bytes of the matrices that are expected; more are taken as they come.
    """

    def __init__(self, num_bytes: int) -> None:
        self._piece_bytes = num_bytes
        self._bytes = _pages(num_bytes)
        self._used = 0

    def take(self, storage: Storage) -> Tensor:
        """Return memory for a matrix."""
        if self._used + storage.num_bytes > len(self._bytes):
            # Tensors keep the piece before.
            self._bytes = _pages(max(self._piece_bytes, storage.num_bytes))
            self._used = 0
        begin, self._used = self._used, self._used + storage.num_bytes
        return self._bytes[begin : self._used]


def _pages(num_bytes: int) -> Tensor:
    # Shared memory, the default of mmap, gets no large pages. Pages exist when they are written.
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.uint8)


def pack(
    pool: KernelPool,
    arena: WeightArena,
    storage: Storage,
    parts: Sequence[Part],
    biases: Sequence[Part] = (),
) -> PackedWeights:
    """Return a matrix made of `parts`; every panel belongs to one part.

    Args:
        parts: Weights [rows, inputs], float32, bfloat16 or any type that torch converts; codes if
            the storage has their form, or to be turned into values.
        biases: Biases [rows] if there are any, placed like the weights.
    """
    scales = torch.zeros(storage.num_outputs) if storage.kind == abi.INT8 else None
    form = storage.form
    table, order = (None, None) if form is None else (form.table_tensor(), form.order_tensor())
    memory, bias = arena.take(storage), _pack_biases(storage, biases)
    packed = PackedWeights(storage, memory, bias, scales, table, order)
    structure = packed.structure()
    for part in parts:
        place = (part.first_panel, part.panel_step)
        if isinstance(part.rows, CodedMatrix) and storage.form is not None:
            _pack_codes(pool, structure, part.rows, place)
            continue
        values = part.values
        rows = (values if values.dtype in TYPES else values.float()).contiguous()
        pool.pack(structure, TYPES[rows.dtype], pointer(rows), len(rows), *place)
    return packed


def _pack_codes(
    pool: KernelPool, structure: abi.LinearArgs, rows: CodedMatrix, place: tuple[int, int]
) -> None:
    scales, offsets, factors = rows.scales, rows.offsets, rows.factored
    scale_factors = offset_factors = None
    if factors is not None:
        scales, scale_factors = factors.scales, factors.scale_factors
        offsets, offset_factors = factors.offsets, factors.offset_factors
    parts = (rows.codes, scales, offsets, scale_factors, offset_factors)
    tensors = [None if one is None else one.contiguous() for one in parts]
    codes = abi.CodesArgs(*map(pointer, tensors))
    pool.pack_codes(structure, codes, len(rows.codes), *place)


def _pack_biases(storage: Storage, biases: Sequence[Part]) -> Tensor | None:
    if not biases:
        return None
    bias = torch.zeros(storage.num_outputs, dtype=torch.float32)
    for part in biases:
        panels = bias.view(-1, PANEL)[part.first_panel :: part.panel_step]
        filled = panels.reshape(-1)
        filled[: len(part.values)] = part.values.float()
        panels[: len(panels)] = filled.view(-1, PANEL)
    return bias
