"""Adapters of experts that a router chooses, of the embedding and of the matrix for logits, in
plain torch.

A slot has memory for them only while its adapter has some. The experts of a layer have many times
the values of its other matrices. Few adapters change the embedding or the matrix for logits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pagewire_worker.adapters.content import AdapterPart
from pagewire_worker.backend.adapters import AdapterRows
from pagewire_worker.layers.linear import Linear

RowsNow = Callable[[], AdapterRows | None]
"""Returns the adapters of the rows that a matrix is called with; None for none."""


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
class LateTensors:
    """The adapters of one matrix.

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

    def add(
        self,
        y: Tensor,
        rows: AdapterRows,
        lower: Callable[[Tensor, AdapterPart], Tensor],
    ) -> None:
        """Add the adapters of `rows` to y [rows, outputs], and round once.

        Args:
            lower: Returns down x of a part, float32 [n, rank], for the rows of these numbers [n].
        """
        for slot in rows.used:
            parts = self.held.get(slot)
            if parts is None:
                continue
            index = (rows.slots == slot).nonzero().squeeze(1)
            for (begin, end), part in zip(self.bounds, parts, strict=True):
                if part is not None:
                    added = lower(index, part) * part.scaling @ part.up.float().T
                    y[index, begin:end] = (y[index, begin:end].float() + added).to(y.dtype)


@dataclass(frozen=True, slots=True)
class WithLateAdapters:
    """A linear layer around a base of any kind."""

    base: Linear
    tensors: LateTensors
    rows: RowsNow

    def __call__(self, x: Tensor) -> Tensor:
        """Map [tokens, in] to [tokens, out]."""
        y, rows = self.base(x), self.rows()
        if rows is not None:
            self.tensors.add(y, rows, lambda index, part: x[index].float() @ part.down.float().T)
        return y


@dataclass(frozen=True, slots=True)
class AdaptedEmbedding:
    """An embedding around a base, [tokens] -> [tokens, hidden]."""

    base: Callable[[Tensor], Tensor]
    tensors: LateTensors
    rows: RowsNow

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Map [tokens] to [tokens, hidden]."""
        y, rows = self.base(token_ids), self.rows()
        if rows is not None:
            self.tensors.add(y, rows, lambda index, part: part.down[:, token_ids[index]].float().T)
        return y
