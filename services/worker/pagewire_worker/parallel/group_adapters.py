"""Adapter slots of a group of ranks: each rank loads its part of an adapter, beside steps.

Rank 0 has the content. It gives the others a file of memory with it, and all of them fill the slot
at once, each in a thread of its own. The slot holds the adapter once every rank has its part, so a
step that uses it finds it everywhere.
"""

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pagewire_shared.adapters.adapter_folder import (
    AdapterContent,
    AdapterSummary,
    check_content,
)
from pagewire_shared.adapters.model_shapes import ModelShapes
from pagewire_shared.adapters.tensor_header import AdapterBounds
from pagewire_worker.adapters.held import HeldAdapters
from pagewire_worker.backend.adapters import AdapterLimits, AdapterSlots
from pagewire_worker.parallel.memory_file import new_file
from pagewire_worker.parallel.rank_links import RankLinks


class GroupAdapters:
    """The slots of all ranks, as rank 0 sees them.

    Args:
        own: Of rank 0.
    """

    def __init__(self, own: AdapterSlots, links: RankLinks) -> None:
        self._own = own
        self._links = links
        self._held = HeldAdapters()

    @property
    def limits(self) -> AdapterLimits:
        """How many there are, and the largest rank."""
        return self._own.limits

    @property
    def shapes(self) -> ModelShapes:
        """What an adapter has to fit: the whole model."""
        return self._own.shapes

    @property
    def held(self) -> Mapping[int, bytes]:
        """The identities of the adapters that all ranks have, by their slots."""
        return self._held.ids

    def verify(self, content: AdapterContent, summary: AdapterSummary) -> None:
        """Compare what an adapter says of the model itself. Raises AdapterError."""
        self._own.verify(content, summary)

    def fill(self, slot: int, content: AdapterContent, summary: AdapterSummary) -> None:
        """Put an adapter into a slot of all ranks that no step reads; called beside steps.

        Raises:
            AdapterError: It does not do in a rank; the slot is empty then.
            RankLostError: A rank is lost.
        """
        request = {
            "slot": slot,
            "adapter_id": summary.adapter_id.hex(),
            "config_bytes": len(content.config),
        }
        with (
            self._held.filling(slot, summary.adapter_id),
            _shared(content) as file,
            self._links.asked(request, file),
        ):
            self._own.fill(slot, content, summary)

    def clear(self) -> None:
        """Empty all slots; loads under way fill none."""
        self._held.clear()
        self._own.clear()


def fill_slot(slots: AdapterSlots, request: Mapping[str, Any], file: int) -> None:
    """Do in another rank what `GroupAdapters.fill` asks for. Raises AdapterError."""
    # Mapped, since all ranks share the place where the file is read next.
    with mmap.mmap(file, 0, access=mmap.ACCESS_READ) as both:
        size = request["config_bytes"]
        content = AdapterContent(both[:size], both[size:])
    # Rank 0 has compared the content with its identity.
    summary = check_content(
        content,
        AdapterBounds(max_rank=slots.limits.max_rank),
        adapter_id=bytes.fromhex(request["adapter_id"]),
    )
    slots.fill(request["slot"], content, summary)


@contextmanager
def _shared(content: AdapterContent) -> Iterator[int]:
    """Yield a file of memory with the config and the tensors, one behind the other."""
    descriptor = new_file("pagewire-adapter", content.num_bytes)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.config)
        file.write(content.weights)
        file.flush()
        yield descriptor
