"""The adapters of experts that a router chooses, of the embedding and of the matrix for logits, as
Triton's kernels read them.

A slot has memory for them only while its adapter has some; the tables that say where it lies have a
fixed place, so that captured graphs read what is there when they run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import torch
from torch import Tensor

from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.layers.linear import Linear
from pagewire_worker.models.adapter_tensors import StepAdapters
from pagewire_worker.triton_kernels.expert_low_rank import (
    ExpertTable,
    add_embedding_adapters,
    add_expert_adapters,
)
from pagewire_worker.triton_kernels.low_rank import TILE_ROWS
from pagewire_worker.triton_kernels.route_tokens import NO_EXPERT, SortedRows, sort_rows

_ALIGNED: Final = 64
"""Tensors begin at multiples of so many values."""


@dataclass(frozen=True, slots=True)
class MergedParts:
    """The adapter of one expert.

    Attributes:
        down: [parts, rank, inputs], or [inputs, rank] where it is read row by row.
        up: [outputs, rank].
        scalings: Of the parts.
    """

    down: Tensor
    up: Tensor
    rank: int
    scalings: list[float]


@dataclass(frozen=True, slots=True)
class ExpertStack:
    """The adapters of one matrix of all experts of a layer, of all slots.

    The embedding and the matrix for logits are stacks of one expert.

    Attributes:
        has_rows: Whether `down` is read row by row, so that a row of it is one of its inputs.
    """

    table: ExpertTable
    num_experts: int
    has_rows: bool = False

    @classmethod
    def empty(
        cls,
        bounds: Sequence[tuple[int, int]],
        *,
        num_experts: int,
        num_slots: int,
        max_rank: int,
        device: torch.device,
        has_rows: bool = False,
    ) -> "ExpertStack":
        """Return a stack without adapters, of parts with these first and last outputs."""
        num_rows = num_slots * num_experts

        def zeros(*shape: int, of: torch.dtype) -> Tensor:
            return torch.zeros(shape, dtype=of, device=device)

        table = ExpertTable(
            downs=zeros(num_rows, of=torch.int64),
            ups=zeros(num_rows, of=torch.int64),
            ranks=zeros(num_rows, of=torch.int32),
            scalings=zeros(num_rows, len(bounds), of=torch.float32),
            sizes=tuple(end - begin for begin, end in bounds),
            max_rank=max_rank,
        )
        return cls(table, num_experts, has_rows)

    def rows(self, slot: int) -> slice:
        """Return the rows of the table that are a slot's."""
        return slice(slot * self.num_experts, (slot + 1) * self.num_experts)

    def merged(self, parts: Sequence[AdapterPart | None]) -> MergedParts | None:
        """Return the adapter of one expert; None if its parts are all None."""
        found = [one for one in parts if one is not None]
        if not found:
            return None
        rank = max(one.rank for one in found)
        scalings = [0.0 if one is None else one.scaling for one in parts]
        if len(parts) == 1:
            down, up = found[0].down, found[0].up
            return MergedParts(down.T if self.has_rows else down, up, rank, scalings)
        down = found[0].down.new_zeros((len(parts), rank, found[0].down.shape[1]))
        up = found[0].up.new_zeros((sum(self.table.sizes), rank))
        outputs = up.split(self.table.sizes)
        for part, (one, own) in enumerate(zip(parts, outputs, strict=True)):
            if one is not None:
                down[part, : one.rank] = one.down
                own[:, : one.rank] = one.up
        return MergedParts(down, up, rank, scalings)

    def add(self, y: Tensor, x: Tensor, rows: SortedRows, choices_per_row: int) -> None:
        """Add the adapters of the choices in `rows` to y [choices, outputs] for the inputs x."""
        add_expert_adapters(y, x, rows, self.table, choices_per_row)


@dataclass(frozen=True, slots=True)
class ExpertMember:
    """One expert of a stack, in the place of its matrix among those of a model.

    Attributes:
        bounds: First output of each part, and the one behind its last.
    """

    stack: ExpertStack
    expert: int
    bounds: tuple[tuple[int, int], ...]


class SlotMemory:
    """The tensors of a slot that stacks point to, in one piece of memory.

    Args:
        dtype: Type of the model.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device = device
        self._dtype = dtype
        self._held: dict[int, tuple[Tensor, ...]] = {}

    @property
    def held(self) -> Mapping[int, tuple[Tensor, ...]]:
        """The tensors of each slot whose adapter has some."""
        return self._held

    def write(
        self,
        slot: int,
        stacks: Iterable[ExpertStack],
        found: Iterable[tuple[ExpertMember, Sequence[AdapterPart | None]]],
    ) -> None:
        """Replace the adapters of a slot that no step reads.

        Args:
            stacks: All of the model.
            found: The parts of each expert.
        """
        for stack in stacks:
            stack.table.ranks[stack.rows(slot)].zero_()
        self._held.pop(slot, None)  # its memory is free before more is taken
        merged = [(member, member.stack.merged(parts)) for member, parts in found]
        own = [(member, one) for member, one in merged if one is not None]
        if not own:
            return
        tensors = [tensor for _, one in own for tensor in (one.down, one.up)]
        *begins, num_values = accumulate((_aligned(one.numel()) for one in tensors), initial=0)
        values = torch.empty(num_values, dtype=self._dtype)
        held = torch.empty(num_values, dtype=self._dtype, device=self._device)
        for begin, tensor in zip(begins, tensors, strict=True):
            values[begin : begin + tensor.numel()].view(tensor.shape).copy_(tensor)
        held.copy_(values)
        self._held[slot] = places = tuple(
            held[begin : begin + tensor.numel()]
            for begin, tensor in zip(begins, tensors, strict=True)
        )
        addresses = [one.data_ptr() for one in places]
        rows = zip((one for _, one in own), addresses[0::2], addresses[1::2], strict=True)
        by_stack: dict[int, list[tuple[ExpertMember, _Row]]] = {}
        for (member, _), row in zip(own, rows, strict=True):
            by_stack.setdefault(id(member.stack), []).append((member, row))
        for members in by_stack.values():
            _write_rows(slot, members)


_Row = tuple[MergedParts, int, int]
"""An adapter, and the addresses of its tensors down and up."""


def _aligned(num_values: int) -> int:
    return -(-num_values // _ALIGNED) * _ALIGNED


def _write_rows(slot: int, members: Sequence[tuple[ExpertMember, _Row]]) -> None:
    """Write where the adapters of a stack lie; ranks last, which make them valid."""
    stack = members[0][0].stack
    table, first = stack.table, stack.rows(slot).start
    device = table.ranks.device
    index = torch.tensor([first + member.expert for member, _ in members], device=device)
    for tensor, values in (
        (table.downs, [down for _, (_, down, _) in members]),
        (table.ups, [up for _, (_, _, up) in members]),
        (table.scalings, [one.scalings for _, (one, _, _) in members]),
        (table.ranks, [one.rank for _, (one, _, _) in members]),
    ):
        tensor.index_copy_(0, index, torch.tensor(values, dtype=tensor.dtype, device=device))


@dataclass(frozen=True, slots=True)
class StackedOutput:
    """The matrix for logits around a base of any kind.

    Attributes:
        step: The adapters of the rows whose logits are computed.
    """

    base: Linear
    stack: ExpertStack
    step: StepAdapters

    def __call__(self, x: Tensor) -> Tensor:
        """Map [rows, hidden] to [rows, vocab]."""
        y = self.base(x)
        rows: SortedRows | None = self.step.output
        if rows is not None:
            self.stack.add(y, x.contiguous(), rows, 1)
        return y


@dataclass(frozen=True, slots=True)
class StackedEmbedding:
    """An embedding around a base, [tokens] -> [tokens, hidden]."""

    base: Callable[[Tensor], Tensor]
    stack: ExpertStack
    step: StepAdapters

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Map [tokens] to [tokens, hidden]."""
        y = self.base(token_ids)
        rows: SortedRows | None = self.step.rows
        if rows is not None:
            add_embedding_adapters(y, token_ids, rows, self.stack.table)
        return y


@dataclass(frozen=True, slots=True)
class ExpertAdapters:
    """The adapters of the experts of a layer.

    Attributes:
        up, down: Of both matrices.
        step: The adapters of the step that runs.
    """

    up: ExpertStack
    down: ExpertStack
    step: StepAdapters

    def sort(self, chosen: Tensor) -> SortedRows | None:
        """Sort the choices [tokens, chosen] of a step by adapter and expert, on the device.

        Returns None for a step without adapters.
        """
        rows = self.step.routed.step
        if rows is None:
            return None
        slots, num_experts = rows.slots.to(torch.int32).unsqueeze(1), self.up.num_experts
        keys = torch.where(slots < 0, NO_EXPERT, slots * num_experts + chosen)
        return sort_rows(keys.contiguous(), self.step.num_slots * num_experts, TILE_ROWS)
