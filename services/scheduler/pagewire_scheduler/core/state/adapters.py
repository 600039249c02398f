"""The adapter slots of one worker: the adapter in each, and whether sequences use it.

The scheduler gives the slots out, as it does with blocks. `core.queueing.adapter_slots` decides
which adapter comes next and which one leaves.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_WARM: Final = 1024
"""Adapters of which is remembered that a worker had their content."""


class SlotState(enum.Enum):
    """The state of an adapter slot."""

    EMPTY = "empty"  # nothing is in it
    LOADING = "loading"  # a load into it was ordered
    READY = "ready"  # sequences may use its adapter
    CLOSING = "closing"  # as READY, but no further sequence starts: another adapter has waited long


_MOVES: Final = {
    SlotState.EMPTY: {SlotState.LOADING},
    SlotState.LOADING: {SlotState.READY, SlotState.EMPTY},
    SlotState.READY: {SlotState.CLOSING, SlotState.LOADING},
    SlotState.CLOSING: {SlotState.READY, SlotState.LOADING},
}


@dataclass(slots=True, eq=False)
class AdapterSlot:
    """One adapter slot.

    Attributes:
        adapter: The adapter in it, or on its way; empty for none.
        num_users: Sequences that run with it, and sequences that a step under way still names.
        last_use: Grows with every use that ends; the least was used longest ago.
        load_id: The newest load into it.
    """

    number: int
    adapter: bytes = b""
    state: SlotState = SlotState.EMPTY
    num_users: int = 0
    last_use: int = 0
    load_id: int = 0

    def advance(self, target: SlotState) -> None:
        """Move to `target`; asserts that the table has the move."""
        assert target in _MOVES[self.state], f"no move from {self.state} to {target}"
        self.state = target


@dataclass(frozen=True, slots=True)
class SlotLoad:
    """A load to send to the worker; its parts are those of LoadAdapter."""

    load_id: int
    adapter: bytes
    slot: int
    sources: tuple[str, ...]


class WorkerAdapters:
    """The adapter slots of a worker.

    Attributes:
        slots: All of them, by number.
        warm: Adapters whose content the worker had; the one used last comes last.
        num_loads, num_evictions, num_failures: Totals since the worker attached.
    """

    __slots__ = (
        "_by_adapter",
        "_num_uses",
        "num_evictions",
        "num_failures",
        "num_loads",
        "slots",
        "warm",
    )

    def __init__(self, num_slots: int, warm: Iterable[bytes] = ()) -> None:
        self.slots = [AdapterSlot(number) for number in range(num_slots)]
        self.warm = dict.fromkeys(warm)
        self.num_loads = self.num_evictions = self.num_failures = 0
        self._by_adapter: dict[bytes, AdapterSlot] = {}
        self._num_uses = 0

    def find(self, adapter: bytes) -> AdapterSlot | None:
        """Return the slot that holds an adapter, or waits for it."""
        return self._by_adapter.get(adapter)

    def is_ready(self, adapter: bytes) -> bool:
        """Return whether sequences with this adapter may start; always for none."""
        slot = self._by_adapter.get(adapter)
        return not adapter or (slot is not None and slot.state is SlotState.READY)

    def slot_of(self, adapter: bytes) -> int | None:
        """Return the number of the slot that holds an adapter; None for no adapter."""
        return self._by_adapter[adapter].number if adapter else None

    def begin_use(self, adapter: bytes) -> None:
        """Count a sequence that runs with `adapter`, if it has one."""
        if adapter:
            self._by_adapter[adapter].num_users += 1

    def end_use(self, adapter: bytes) -> None:
        """Count a sequence less, which no step names any more."""
        if adapter:
            slot = self._by_adapter[adapter]
            slot.num_users -= 1
            self._note_use(slot)

    def begin_load(self, slot: AdapterSlot, adapter: bytes, sources: tuple[str, ...]) -> SlotLoad:
        """Give `slot`, which nothing uses, to `adapter`; return the load to send."""
        assert not slot.num_users, "an adapter is replaced while sequences use it"
        assert adapter not in self._by_adapter, "an adapter comes into two slots"
        self.num_evictions += slot.state is not SlotState.EMPTY
        slot.advance(SlotState.LOADING)
        if slot.adapter:
            del self._by_adapter[slot.adapter]
        self.num_loads += 1
        slot.adapter, slot.load_id = adapter, self.num_loads
        self._by_adapter[adapter] = slot
        return SlotLoad(slot.load_id, adapter, slot.number, sources)

    def end_load(self, load_id: int, *, is_loaded: bool) -> bytes | None:
        """Take the answer to a load; return its adapter, or None for an unknown load."""
        for slot in self.slots:
            if slot.load_id == load_id and slot.state is SlotState.LOADING:
                break
        else:
            return None
        adapter = slot.adapter
        if is_loaded:
            slot.advance(SlotState.READY)
            self._note_use(slot)
            self._note_warm(adapter)
        else:
            slot.advance(SlotState.EMPTY)
            self.num_failures += 1
            self.warm.pop(adapter, None)
            slot.adapter = b""
            del self._by_adapter[adapter]
        return adapter

    def _note_use(self, slot: AdapterSlot) -> None:
        self._num_uses += 1
        slot.last_use = self._num_uses

    def _note_warm(self, adapter: bytes) -> None:
        self.warm.pop(adapter, None)
        self.warm[adapter] = None
        if len(self.warm) > MAX_WARM:
            del self.warm[next(iter(self.warm))]
