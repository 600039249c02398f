"""The adapter slots of a replica: which adapter is in each, and who computes with them."""

from dataclasses import replace
from typing import Protocol

import torch

from pagewire_shared.adapters.adapter_folder import AdapterContent, AdapterSummary
from pagewire_shared.adapters.fit import check_fit
from pagewire_shared.steps.plan import StepPlan
from pagewire_worker.adapters.base_copies import BaseCopies
from pagewire_worker.adapters.content import AdapterParts, CutPart, read_parts
from pagewire_worker.adapters.held import HeldAdapters
from pagewire_worker.adapters.targets import AdapterTargets
from pagewire_worker.backend.adapters import AdapterLimits, AdapterSlots
from pagewire_worker.plan.plan_error import PlanError


class AdapterStore(Protocol):
    """Memory for the adapters of all slots, in the form that a backend computes with."""

    def write(self, slot: int, parts: AdapterParts) -> None:
        """Replace the adapter of a slot that no step reads. Called beside steps."""
        ...


class AdapterTable:
    """The adapter slots of one replica.

    Loads fill a slot in a thread of their own, while steps read other slots.

    Args:
        targets: Of what is computed here.
        whole: Of the whole model, of which ranks compute a part each.
        store: The memory of the backend.
        dtype: Type of the model.
        copies: Compares copies of its own matrices.
        cut: Takes this rank's part of the adapter of a tensor.

    Attributes:
        shapes: What an adapter has to fit.
    """

    def __init__(
        self,
        *,
        targets: AdapterTargets,
        whole: AdapterTargets,
        limits: AdapterLimits,
        store: AdapterStore,
        dtype: torch.dtype,
        copies: BaseCopies,
        cut: CutPart,
    ) -> None:
        self._targets = targets
        self.limits = limits
        self.shapes = replace(
            whole.shapes, slot_bytes=limits.late_bytes, value_bytes=dtype.itemsize
        )
        self._store = store
        self._dtype = dtype
        self._copies = copies
        self._cut = cut
        self._held = HeldAdapters()

    @property
    def held(self) -> dict[int, bytes]:
        """The identities of the adapters by their slots."""
        return self._held.ids

    def verify(self, content: AdapterContent, summary: AdapterSummary) -> None:
        """Compare what an adapter says of the model itself.

        Raises:
            AdapterError: A matrix of the model that it has is another one.
        """
        self._copies.verify(content, summary)

    def fill(self, slot: int, content: AdapterContent, summary: AdapterSummary) -> None:
        """Put an adapter into a slot that no sequence uses.

        Raises:
            AdapterError: The adapter does not fit the model; the slot is empty then.
        """
        with self._held.filling(slot, summary.adapter_id):
            modules = check_fit(summary, self.shapes)
            parts = read_parts(content, modules, self._targets, self._dtype, self._cut)
            self._store.write(slot, parts)

    def clear(self) -> None:
        """Empty all slots; loads under way fill none."""
        self._held.clear()


def check_adapters(table: AdapterSlots | None, plan: StepPlan) -> None:
    """Raise PlanError naming the slot of a new sequence whose adapter is not loaded."""
    wanted = [one for one in plan.new_sequences if one.adapter_slot is not None]
    held = table.held if wanted and table is not None else {}
    for request in wanted:
        adapter = request.adapter_slot
        if adapter not in held:
            text = f"slot {request.slot}: adapter_slot {adapter} holds no adapter"
            raise PlanError(text, (request.slot,))
