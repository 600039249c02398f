"""Adapters of all slots as tensors of a fixed shape, and linear layers that add them.

The sum of a token is defined once for all backends (docs/adr/0041-adapters.md): both products are
summed in float32, the first one is not rounded, and their sum is added to the result of the base in
float32, which is then rounded.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from pagewire_worker.adapters.content import AdapterPart, AdapterParts
from pagewire_worker.adapters.targets import AdaptedLinear, AdapterTargets
from pagewire_worker.backend.adapters import AdapterLimits, AdapterRows
from pagewire_worker.families.plan import LinearSpec
from pagewire_worker.layers.linear import Linear
from pagewire_worker.models.late_adapters import (
    AdaptedEmbedding,
    LateTensors,
    RoutedRows,
    WithLateAdapters,
)
from pagewire_worker.models.load_parts import in_order

RANK_STEP: Final = 16
"""Ranks are stored as multiples of this, as kernels read them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTensors:
    """The adapters of one matrix, of all slots. Values behind the rank of an adapter are 0.

    Attributes:
        bounds: First output of each part, and the one behind its last.
        down: [slots, parts * max_rank, inputs].
        up: [slots, outputs, max_rank], a multiple of RANK_STEP.
        scalings: float32 [slots, parts].
        ranks: int32 [slots], the largest rank of the parts.
    """

    bounds: tuple[tuple[int, int], ...]
    down: Tensor
    up: Tensor
    scalings: Tensor
    ranks: Tensor

    @property
    def max_rank(self) -> int:
        """The largest rank of any adapter."""
        return self.up.shape[2]


class LateSlots(Protocol):
    """The adapters of a matrix for which slots have memory only while an adapter changes it."""

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """First output of each part, and the one behind its last."""
        ...


class LowRankSum(Protocol):
    """Adds the adapters of a step to the results of bases."""

    def prepare(self, rows: AdapterRows, num_slots: int) -> Any:
        """Return `rows` in the form that `add` takes, once per step."""
        ...

    def add(self, y: Tensor, x: Tensor, rows: Any, tensors: SlotTensors) -> Tensor:
        """Return y [tokens, outputs] with the adapters of `rows` for the inputs x added."""
        ...


@dataclass(slots=True)
class StepAdapters:
    """The adapters of the step that runs, as they were prepared. Set before layers are called.

    Attributes:
        rows: None for none.
        routed: Those of the expert that is called.
        output: Those of the rows whose logits are computed; None for none.
    """

    sums: LowRankSum
    num_slots: int
    rows: Any = None
    routed: RoutedRows = field(default_factory=RoutedRows)
    output: Any = None

    def begin(self, rows: AdapterRows | None) -> None:
        """Prepare the adapters of a step."""
        self.routed.step = rows
        self.rows = self._prepared(rows)

    def begin_logits(self, rows: AdapterRows | None) -> None:
        """Prepare the adapters of the rows whose logits are computed next."""
        self.output = self._prepared(rows)

    def _prepared(self, rows: AdapterRows | None) -> Any:
        return None if rows is None else self.sums.prepare(rows, self.num_slots)


@dataclass(frozen=True, slots=True)
class WithAdapters:
    """A linear layer around a base of any kind."""

    base: Linear
    tensors: SlotTensors
    step: StepAdapters

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        y = self.base(x)
        rows = self.step.rows
        return y if rows is None else self.step.sums.add(y, x, rows, self.tensors)


class TensorAdapterStore:
    """Adapters of a model whose layers compute with torch's tensors.

    Args:
        sums: How they are added.

    Attributes:
        step: The adapters of the step that runs.
    """

    def __init__(
        self,
        *,
        targets: AdapterTargets,
        limits: AdapterLimits,
        device: torch.device,
        dtype: torch.dtype,
        sums: LowRankSum,
    ) -> None:
        self.targets = targets
        self.limits = limits
        self.device = device
        self.step = StepAdapters(sums, limits.num_slots)
        self._tensors = [
            self.make_late(one)
            if one.takes_memory_late
            else _slot_tensors(one, limits, device, dtype)
            for one in targets.linears
        ]
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def make_late(self, linear: AdaptedLinear) -> LateSlots:
        """Return what keeps the adapters of a matrix that takes memory late."""
        return LateTensors(linear.bounds)

    def wrap(self, spec: LinearSpec, base: Linear) -> Linear:
        """Return `base` with adapters, or itself where adapters may not change it."""
        index = self.targets.index_of(spec)
        if index is None:
            return base
        tensors = self._tensors[index]
        if isinstance(tensors, SlotTensors):
            return WithAdapters(base, tensors, self.step)
        assert isinstance(tensors, LateTensors), "experts in stacks are not wrapped"
        return WithLateAdapters(base, tensors, lambda: self.step.routed.rows)

    def wrap_embedding(self, base: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """Return the embedding `base`, [tokens] -> [tokens, hidden], with adapters."""
        tensors = self._tensors[self.targets.linears.index(self.targets.embedding)]
        assert isinstance(tensors, LateTensors)
        return AdaptedEmbedding(base, tensors, lambda: self.step.rows)

    def wrap_output(self, base: Linear) -> Linear:
        """Return the matrix for logits with adapters."""
        tensors = self._tensors[self.targets.linears.index(self.targets.output)]
        assert isinstance(tensors, LateTensors)
        return WithLateAdapters(base, tensors, lambda: self.step.output)

    @torch.inference_mode()
    def write(self, slot: int, parts: AdapterParts) -> None:
        """Replace the adapter of a slot."""
        if self._stream is None:
            self._write(slot, parts)
            return
        # Beside the stream of the steps, and over when this returns.
        with torch.cuda.stream(self._stream):
            self._write(slot, parts)
        self._stream.synchronize()

    def _write(self, slot: int, parts: AdapterParts) -> None:
        late: dict[int, Sequence[AdapterPart | None]] = {}
        for index, (linear, own) in enumerate(
            zip(self.targets.linears, self._tensors, strict=True)
        ):
            found = [parts.get((index, part)) for part in range(len(own.bounds))]
            if isinstance(own, SlotTensors):
                _fill(own, slot, linear, found)
            else:
                late[index] = found
        self.write_late(slot, late)

    def write_late(self, slot: int, found: Mapping[int, Sequence[AdapterPart | None]]) -> None:
        """Replace the adapters of all matrices that take memory late, by their numbers."""
        for index, parts in found.items():
            tensors = self._tensors[index]
            assert isinstance(tensors, LateTensors)
            tensors.write(slot, parts, self.device)


def _fill(
    own: SlotTensors, slot: int, linear: AdaptedLinear, found: Sequence[AdapterPart | None]
) -> None:
    for tensor in (own.down, own.up, own.scalings, own.ranks):
        tensor[slot].zero_()
    own.ranks[slot].fill_(max(0 if one is None else one.rank for one in found))
    for part, one in enumerate(found):
        if one is None:
            continue
        (begin, end), first = own.bounds[part], part * own.max_rank
        own.down[slot, first : first + one.rank].copy_(one.down)
        up = in_order(one.up, linear.order_within(part))
        own.up[slot, begin:end, : one.rank].copy_(up)
        own.scalings[slot, part].fill_(one.scaling)


def _slot_tensors(
    linear: AdaptedLinear, limits: AdapterLimits, device: torch.device, dtype: torch.dtype
) -> SlotTensors:
    slots, num_parts = limits.num_slots, len(linear.bounds)
    rank = -(-limits.max_rank // RANK_STEP) * RANK_STEP

    def zeros(*shape: int, of: torch.dtype = dtype) -> Tensor:
        return torch.zeros(shape, dtype=of, device=device)

    return SlotTensors(
        bounds=linear.bounds,
        down=zeros(slots, num_parts * rank, linear.spec.num_inputs),
        up=zeros(slots, linear.spec.num_outputs, rank),
        scalings=zeros(slots, num_parts, of=torch.float32),
        ranks=zeros(slots, of=torch.int32),
    )


class TorchSum:
    """Adds adapters in plain torch: the reference of all other implementations."""

    def prepare(self, rows: AdapterRows, num_slots: int) -> AdapterRows:
        """Return `rows`."""
        return rows

    def add(self, y: Tensor, x: Tensor, rows: AdapterRows, tensors: SlotTensors) -> Tensor:
        """Return y [tokens, outputs] with the adapters of `rows` for the inputs x added."""
        for slot in rows.used:
            index = (rows.slots == slot).nonzero().squeeze(1)
            low = x[index].float() @ tensors.down[slot].float().T
            low = low.view(len(index), -1, tensors.max_rank) * tensors.scalings[slot][:, None]
            y[index] = (y[index].float() + _raised(low, tensors, slot)).to(y.dtype)
        return y


def _raised(low: Tensor, tensors: SlotTensors, slot: int) -> Tensor:
    ups = [tensors.up[slot, begin:end] for begin, end in tensors.bounds]
    return torch.cat([low[:, part] @ up.float().T for part, up in enumerate(ups)], dim=1)
