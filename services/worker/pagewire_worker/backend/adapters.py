"""Interface between adapters and an implementation of the model: tokens, and slots."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from torch import Tensor

from pagewire_shared.adapters.adapter_folder import AdapterContent, AdapterSummary
from pagewire_shared.adapters.model_shapes import ModelShapes

NO_ADAPTER: Final = -1
"""In the place of an adapter slot: the model alone."""


@dataclass(frozen=True, slots=True)
class AdapterLimits:
    """Bounds of the adapters of a replica: slots at once, and the largest rank.

    Attributes:
        late_bytes: Most bytes in a slot of experts that a router chooses, the embedding and the
            matrix for logits. A slot has this memory while its adapter changes them, and for other
            matrices always that of max_rank.
    """

    num_slots: int
    max_rank: int
    late_bytes: int


@dataclass(frozen=True, slots=True)
class AdapterRows:
    """The adapters of a step, of which at least one token has one.

    Attributes:
        slots: [tokens] int64 on the device, the adapter slot of each token, or NO_ADAPTER.
        used: The adapter slots in it, ascending.
    """

    slots: Tensor
    used: tuple[int, ...]

    def part(self, first: int, end: int) -> "AdapterRows":
        """Return the adapters of some of the tokens."""
        return AdapterRows(self.slots[first:end], self.used)


@runtime_checkable
class AdaptsLogits(Protocol):
    """A decoder whose matrix for logits takes adapters."""

    def adapt_logits(self, rows: AdapterRows | None) -> None:
        """Set the adapters of the rows whose logits are computed next; None for none."""
        ...


class AdapterSlots(Protocol):
    """The adapter slots of a loaded model."""

    @property
    def limits(self) -> AdapterLimits:
        """How many there are, and the largest rank."""
        ...

    @property
    def shapes(self) -> ModelShapes:
        """What an adapter has to fit."""
        ...

    @property
    def held(self) -> Mapping[int, bytes]:
        """The identities of the adapters that may be used, by their slots."""
        ...

    def verify(self, content: AdapterContent, summary: AdapterSummary) -> None:
        """Compare what an adapter says of the model itself; called once, beside steps.

        Raises:
            AdapterError: A matrix of the model that it has is another one.
        """
        ...

    def fill(self, slot: int, content: AdapterContent, summary: AdapterSummary) -> None:
        """Put an adapter into a slot that no step reads; called beside steps.

        Raises:
            AdapterError: The adapter does not fit the model; the slot is empty then.
        """
        ...

    def clear(self) -> None:
        """Empty all slots; loads under way fill none."""
        ...
