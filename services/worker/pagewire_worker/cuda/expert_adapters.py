"""The adapters of experts that a router chooses, as Triton's kernels read them.

A slot has memory for them only while its adapter has some; the tables that say where it lies have a
fixed place, so that captured graphs read what is there when they run.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.models.adapter_tensors import StepAdapters
from pagewire_worker.triton_kernels.expert_low_rank import ExpertTable, add_expert_adapters
from pagewire_worker.triton_kernels.low_rank import TILE_ROWS
from pagewire_worker.triton_kernels.route_tokens import NO_EXPERT, SortedRows, sort_rows


@dataclass(frozen=True, slots=True)
class ExpertStack:
    """The adapters of one matrix of all experts of a layer, of all slots.

    Attributes:
        held: Tensors down and up by the row of the table.
    """

    table: ExpertTable
    num_experts: int
    held: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @classmethod
    def empty(
        cls,
        bounds: Sequence[tuple[int, int]],
        *,
        num_experts: int,
        num_slots: int,
        max_rank: int,
        device: torch.device,
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
        return cls(table, num_experts)

    def write(self, row: int, parts: Sequence[AdapterPart | None], device: torch.device) -> None:
        """Replace the adapter of an expert in a slot that no step reads."""
        table = self.table
        table.ranks[row].zero_()
        self.held.pop(row, None)
        found = [one for one in parts if one is not None]
        if not found:
            return
        rank = max(one.rank for one in found)
        down = found[0].down.new_zeros((len(parts), rank, found[0].down.shape[1]))
        up = found[0].up.new_zeros((sum(table.sizes), rank))
        scalings = torch.zeros(len(parts))
        for part, (one, outputs) in enumerate(zip(parts, up.split(table.sizes), strict=True)):
            if one is not None:
                down[part, : one.rank] = one.down
                outputs[:, : one.rank] = one.up
                scalings[part] = one.scaling
        self.held[row] = own_down, own_up = down.to(device), up.to(device)
        table.downs[row].fill_(own_down.data_ptr())
        table.ups[row].fill_(own_up.data_ptr())
        table.scalings[row].copy_(scalings)
        table.ranks[row].fill_(rank)

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

    def write(self, slot: int, parts: Sequence[AdapterPart | None], device: torch.device) -> None:
        """Replace the adapters of a slot that no step reads."""
        self.stack.write(slot * self.stack.num_experts + self.expert, parts, device)


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
