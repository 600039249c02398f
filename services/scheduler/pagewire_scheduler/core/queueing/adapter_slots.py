"""Gives the adapter slots of a worker to the adapters that are wanted, in turn.

The adapter that has been wanted longest comes first. It gets an empty slot, or the one unused for
the longest time. A slot with sequences that run, or that wait to start, is not taken away. New
sequences with other adapters could thus hold it back for ever. So after MAX_PASSED starts of them
the slot that was filled first is closed. No further sequence starts there, so the slot comes free
when its last sequence has ended. The sequences that waited to start with its adapter wait for
another turn.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.queueing.adapter_gate import push_waiting
from pagewire_scheduler.core.queueing.enqueue import wait_for_room
from pagewire_scheduler.core.state.adapters import AdapterSlot, SlotLoad, SlotState
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState

MAX_PASSED: Final = 16
"""Sequences that are started in front of the adapter whose turn it is."""

MAX_SOURCES: Final = 4
"""Sources sent with a load."""


def assign_slots(worker: WorkerState) -> list[SlotLoad]:
    """Return the loads that `worker` is to begin now; closes and opens slots."""
    orders: list[SlotLoad] = []
    if worker.duty.is_still:
        return orders  # nothing starts there, so that slots would change hands for ever
    for adapter in _turns(worker):
        slot = worker.adapters.find(adapter)
        if slot is not None:
            if slot.state is SlotState.CLOSING:
                slot.advance(SlotState.READY)
                _let_wait(worker, adapter)
            continue
        slot = _free_slot(worker)
        if slot is None:
            _close_one(worker, adapter)
            break
        evicted = slot.adapter
        wanted = worker.aside.adapting.wanted[adapter]
        sources = chain.from_iterable(
            one.request.submission.adapter_sources for one in wanted.waiting
        )
        some = tuple(dict.fromkeys(sources))[:MAX_SOURCES]
        orders.append(worker.adapters.begin_load(slot, adapter, some))
        _set_aside(worker, evicted)
    return orders


def take_loaded(worker: WorkerState, load_id: int, *, is_loaded: bool) -> list[Sequence]:
    """Take the answer to a load; the sequences of its adapter now wait for slots.

    Returns the sequences of an adapter that cannot be loaded, still in their queue.
    """
    adapter = worker.adapters.end_load(load_id, is_loaded=is_loaded)
    wanted = worker.aside.adapting.wanted.get(adapter) if adapter is not None else None
    if wanted is None or adapter is None:
        return []
    if not is_loaded:
        return sorted(wanted.waiting, key=lambda sequence: sequence.key)
    _let_wait(worker, adapter)
    return []


def take_adapting(worker: WorkerState) -> list[Sequence]:
    """Take out the sequences that wait for adapters, in order, and move them to WAITING; prefills
    stay."""
    taken = [one for one in worker.aside.adapting if not one.is_prefill]
    taken.sort(key=lambda sequence: sequence.key)
    for sequence in taken:
        worker.aside.adapting.remove(sequence)
        sequence.advance(State.WAITING)
    return taken


def _turns(worker: WorkerState) -> list[bytes]:
    """Return the wanted adapters; during a trial those of the suspects come first, because no other
    sequence is started."""
    turns = list(worker.aside.adapting.wanted)
    if worker.fault_isolation:
        suspected = _suspected(worker)
        turns.sort(key=lambda adapter: adapter not in suspected)
    return turns


def _suspected(worker: WorkerState) -> set[bytes]:
    return {one.request.submission.adapter for one in worker.fault_isolation.current()}


def _free_slot(worker: WorkerState) -> AdapterSlot | None:
    """Return the slot that another adapter may have: an empty one, or the one unused longest."""
    suspected = _suspected(worker) if worker.fault_isolation else None
    free = [slot for slot in worker.adapters.slots if _is_free(worker, slot, suspected)]
    return min(
        free, key=lambda slot: (slot.state is not SlotState.EMPTY, slot.last_use), default=None
    )


def _is_free(worker: WorkerState, slot: AdapterSlot, suspected: set[bytes] | None) -> bool:
    if slot.num_users or slot.state is SlotState.LOADING:
        return False
    if suspected is not None:
        return slot.adapter not in suspected  # no other sequence starts meanwhile
    return not worker.waiting.num_of_adapter[slot.adapter]


def _close_one(worker: WorkerState, adapter: bytes) -> None:
    """Close the slot filled first if `adapter`, whose turn it is, has been passed often enough."""
    slots = worker.adapters.slots
    if any(slot.state is SlotState.CLOSING for slot in slots):
        return
    ready = [slot for slot in slots if slot.state is SlotState.READY]
    if ready and worker.aside.adapting.wanted[adapter].num_passed >= MAX_PASSED:
        slot = min(ready, key=lambda slot: slot.load_id)
        slot.advance(SlotState.CLOSING)
        worker.aside.adapting.wanted[adapter].num_passed = 0
        _set_aside(worker, slot.adapter)
        worker.touch()  # it may be free already


def _set_aside(worker: WorkerState, adapter: bytes) -> None:
    """Let the sequences that wait to start with `adapter` wait for another turn of it."""
    for sequence in _members(worker, adapter):
        worker.waiting.remove(sequence)
        push_waiting(worker, sequence)


def _members(worker: WorkerState, adapter: bytes) -> Iterator[Sequence]:
    if adapter and worker.waiting.num_of_adapter[adapter]:
        members = [one for one in worker.waiting if one.request.submission.adapter == adapter]
        yield from sorted(members, key=lambda sequence: sequence.key)


def _let_wait(worker: WorkerState, adapter: bytes) -> None:
    wanted = worker.aside.adapting.wanted[adapter]
    for sequence in sorted(wanted.waiting, key=lambda sequence: sequence.key):
        worker.aside.adapting.end_wait(sequence)
        sequence.advance(State.WAITING)
        wait_for_room(worker, sequence)
