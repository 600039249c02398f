"""Adapters of experts that a router chooses, in plain torch.

A slot has memory for them only while its adapter has some: those of all experts have many times the
values of the other matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.layers.linear import Linear


@dataclass(slots=True)
class RoutedRows:
    """The adapters of the tokens that an expert computes. Set before it is called.

    Attributes:
        rows: None where no token of the step has an adapter.
    """

    step: AdapterRows | None = None
    rows: AdapterRows | None = None

    def choose(self, tokens: Tensor) -> None:
        """Keep the adapters of these tokens of the step."""
        step = self.step
        self.rows = None if step is None else AdapterRows(step.slots[tokens], step.used)


@dataclass(frozen=True, slots=True)
class RoutedTensors:
    """The adapters of one matrix of an expert.

    Attributes:
        bounds: First output of each part, and the one behind its last.
        held: One of each part by the slot; a slot without adapters of the matrix is missing.
    """

    bounds: tuple[tuple[int, int], ...]
    held: dict[int, tuple[AdapterPart | None, ...]] = field(default_factory=dict)

    def write(self, slot: int, parts: Sequence[AdapterPart | None], device: torch.device) -> None:
        """Replace the adapters of a slot that no step reads."""
        self.held.pop(slot, None)
        if any(parts):
            self.held[slot] = tuple(
                None
                if one is None
                else replace(one, down=one.down.to(device), up=one.up.to(device))
                for one in parts
            )


@dataclass(frozen=True, slots=True)
class WithRoutedAdapters:
    """A linear layer of an expert around a base of any kind."""

    base: Linear
    tensors: RoutedTensors
    chosen: RoutedRows

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        y, rows = self.base(x), self.chosen.rows
        if rows is None:
            return y
        for slot in rows.used:
            parts = self.tensors.held.get(slot)
            if parts is not None:
                self._add(y, x, (rows.slots == slot).nonzero().squeeze(1), parts)
        return y

    def _add(
        self, y: Tensor, x: Tensor, index: Tensor, parts: tuple[AdapterPart | None, ...]
    ) -> None:
        """Add the adapters of a slot to the rows `index` of y, which have it."""
        inputs = x[index].float()
        for (begin, end), part in zip(self.tensors.bounds, parts, strict=True):
            if part is not None:
                added = inputs @ part.down.float().T * part.scaling @ part.up.float().T
                y[index, begin:end] = (y[index, begin:end].float() + added).to(y.dtype)
