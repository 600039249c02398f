"""Prepares a scheduler with adapters in the slots of its worker, for tests."""

from unit.scheduler.cell import Cell
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import Event
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.queueing.adapter_slots import assign_slots
from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_shared.errors import InternalError

A, B, C, D = (bytes([65 + number]) * 32 for number in range(4))


def cell(max_adapters: int = 2, **changes: object) -> Cell:
    return Cell(max_adapters=max_adapters, max_adapter_rank=16, **changes)


def ordered(one: Cell, worker: int = 1) -> list[SlotLoad]:
    state = one.core.workers[worker_info(worker).worker_id]
    orders = assign_slots(state)
    check_integrity(one.core)
    return orders


def loaded(one: Cell, order: SlotLoad, error: InternalError | None = None) -> list[Event]:
    events = one.core.note_adapter(one.info.worker_id, order.load_id, error)
    check_integrity(one.core)
    return list(events)


def load_all(one: Cell) -> list[bytes]:
    """Answer all loads that can be ordered now."""
    adapters = []
    while orders := ordered(one):
        for order in orders:
            loaded(one, order)
            adapters.append(order.adapter)
    return adapters


def started(plan: object) -> list[tuple[int, int | None]]:
    return [(one.request_id[0], one.adapter_slot) for one in plan.new_sequences]  # type: ignore[attr-defined]


def state_of(one: Cell, number: int) -> State:
    request = next(r for r in one.core.requests.values() if r.request_id[0] == number)
    return request.sequences[0].state


def answered(one: Cell):  # type: ignore[no-untyped-def]
    def answer(order: SlotLoad) -> SlotLoad:
        loaded(one, order)
        return order

    return answer
