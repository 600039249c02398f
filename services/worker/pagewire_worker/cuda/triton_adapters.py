"""Adds the adapters of a step by Triton kernels."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from pagewire_shared.errors import StartupError
from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.adapters.targets import AdaptedLinear, AdapterTargets
from pagewire_worker.backend.adapters import AdapterLimits, AdapterRows
from pagewire_worker.cuda.expert_adapters import (
    ExpertAdapters,
    ExpertMember,
    ExpertStack,
    SlotMemory,
    StackedEmbedding,
    StackedOutput,
)
from pagewire_worker.families.plan import MlpSpec
from pagewire_worker.layers.linear import Linear
from pagewire_worker.models.adapter_tensors import (
    LateSlots,
    SlotTensors,
    TensorAdapterStore,
)
from pagewire_worker.triton_kernels.low_rank import TILE_ROWS, lower_rank, raise_rank
from pagewire_worker.triton_kernels.route_tokens import SortedRows, sort_rows

MAX_PAIRS: Final = 1 << 14
"""Adapter slots times experts of a layer: a program of the sort counts all of them at once."""


class TritonSum:
    """Adds adapters; nothing comes back to the host, so that a graph can hold it."""

    def prepare(self, rows: AdapterRows, num_slots: int) -> SortedRows:
        """Sort the tokens by adapter slot."""
        chosen = rows.slots.to(torch.int32).unsqueeze(1)
        return sort_rows(chosen, num_slots, TILE_ROWS)

    def add(self, y: Tensor, x: Tensor, rows: SortedRows, tensors: SlotTensors) -> Tensor:
        """Return y [tokens, outputs] with the adapters of `rows` for the inputs x added."""
        sizes = tuple(end - begin for begin, end in tensors.bounds)
        low = lower_rank(
            x.contiguous(), tensors.down, tensors.scalings, tensors.ranks, rows, len(sizes)
        )
        raise_rank(y, low, tensors.up, tensors.ranks, rows, sizes)
        return y


class TritonAdapterStore(TensorAdapterStore):
    """Adapters of a model on Triton kernels: those of the experts of a layer have one table."""

    def __init__(
        self,
        *,
        targets: AdapterTargets,
        limits: AdapterLimits,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        late = [one for one in targets.linears if one.takes_memory_late]
        self._num_experts = Counter((one.layer, one.stack) for one in late)
        most = max(self._num_experts.values())
        if most * limits.num_slots > MAX_PAIRS:
            raise StartupError(
                f"--max-loras: {limits.num_slots} adapters of {most} experts are more than "
                f"{MAX_PAIRS} pairs, which Triton's kernels sort",
                field="max_loras",
            )
        self._stacks: dict[tuple[int, str], ExpertStack] = {}
        self._num_made = Counter[tuple[int, str]]()
        self._members: dict[str, ExpertMember] = {}
        self._late = SlotMemory(device, dtype)
        super().__init__(
            targets=targets, limits=limits, device=device, dtype=dtype, sums=TritonSum()
        )

    def make_late(self, linear: AdaptedLinear) -> LateSlots:
        """Return the place of the next expert in the stack of its layer."""
        key = linear.layer, linear.stack
        if key not in self._stacks:
            self._stacks[key] = ExpertStack.empty(
                linear.bounds,
                num_experts=self._num_experts[key],
                num_slots=self.limits.num_slots,
                max_rank=self.limits.max_rank,
                device=self.device,
                has_rows=linear.place == "embedding",
            )
        stack = self._stacks[key]
        member = ExpertMember(stack, self._num_made[key], linear.bounds)
        self._num_made[key] += 1
        self._members[linear.name] = member
        return member

    def write_late(self, slot: int, found: Mapping[int, Sequence[AdapterPart | None]]) -> None:
        """Replace the adapters of all matrices that take memory late, by their numbers."""
        linears = self.targets.linears
        members = [(self._members[linears[index].name], parts) for index, parts in found.items()]
        self._late.write(slot, self._stacks.values(), members)

    def wrap_embedding(self, base: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Return the embedding `base`, [tokens] -> [tokens, hidden], with adapters."""
        return StackedEmbedding(base, self._members[self.targets.embedding.name].stack, self.step)

    def wrap_output(self, base: Linear) -> Linear:
        """Return the matrix for logits with adapters."""
        return StackedOutput(base, self._members[self.targets.output.name].stack, self.step)

    def experts(self, specs: Sequence[MlpSpec]) -> ExpertAdapters:
        """Return the adapters of the experts of a layer."""
        first = specs[0]
        up, down = (self._members[one.parts[0][0]].stack for one in (first.up, first.down))
        return ExpertAdapters(up, down, self.step)
