"""Slots of a worker are reused in turn, once no step needs what is in them."""

import pytest
from unit.scheduler.adapter_cell import A, B, C, answered, cell, load_all, loaded, ordered, started
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.queueing.adapter_slots import MAX_PASSED
from pagewire_scheduler.core.state.adapters import AdapterSlot, SlotState
from pagewire_shared.sampling.params import SamplingParams


def test_a_slot_is_reused_when_the_last_step_that_used_it_has_returned() -> None:
    one = cell(1)
    one.submit(1, [1, 2], adapter=A, sampling=SamplingParams(max_tokens=3))
    load_all(one)
    first = one.planned()
    second = one.planned()
    one.submit(2, [1, 2], adapter=B)
    assert not ordered(one)
    one.core.abort(b"f" * 16, 1, None)
    assert not ordered(one), "two steps may still use the adapter"
    one.answer(first)
    assert not ordered(one), "a step may still use the adapter"
    one.answer(second)
    (order,) = ordered(one)
    assert (order.adapter, order.slot) == (B, 0)


def test_the_slot_unused_longest_is_taken() -> None:
    one = cell(2)
    for number, adapter in enumerate((A, B, A), 1):
        one.submit(number, [1, 2], adapter=adapter)
        load_all(one)
        one.run()
    one.submit(4, [1, 2], adapter=C)
    (order,) = ordered(one)
    assert order.slot == 1


def test_arrivals_for_a_loaded_adapter_hold_another_one_back_for_so_long_only() -> None:
    one = cell(1, max_num_seqs=2)
    number, num_before = 1, 0
    one.submit(number, [1, 2], adapter=A)
    load_all(one)
    one.submit(100, [1, 2], adapter=B)
    seen: set[int] = set()
    for _ in range(200):
        number += 1
        one.submit(number % 90 + number // 90 * 100 + 1, [3, number % 30], adapter=A)
        orders = ordered(one)
        for order in orders:
            loaded(one, order)
        plan = one.plan()
        if plan is not None:
            seen.update(request for request, _ in started(plan))
            one.answer(plan)
            if 100 in seen:
                break
            num_before += len(plan.new_sequences)
    assert 100 in seen
    assert num_before <= MAX_PASSED + 3
    # The others go on when it has ended.
    for _ in range(500):
        for order in ordered(one):
            loaded(one, order)
        plan = one.plan()
        if plan is not None:
            one.answer(plan)
        elif not one.core.requests:
            break
    assert not one.core.requests


def test_more_adapters_than_slots_all_get_their_turn() -> None:
    one = cell(2)
    for number in range(1, 34):
        one.submit(number, [1, 2, number], adapter=bytes([number]) * 32)
    order_of_loads: list[int] = []
    for _ in range(400):
        order_of_loads += [order.adapter[0] for order in map(answered(one), ordered(one))]
        plan = one.plan()
        if plan is not None:
            one.answer(plan)
        elif not one.core.requests:
            break
    assert not one.core.requests
    assert order_of_loads == list(range(1, 34))


def test_a_lost_worker_takes_its_slots_along() -> None:
    one = cell()
    one.submit(1, [1, 2, 3], adapter=A, adapter_sources=("file:/a",))
    load_all(one)
    one.answer(one.planned(), token=5)
    one.core.detach_worker(one.info.worker_id)
    one.info = worker_info(2, max_adapters=1)
    one.core.attach_worker(one.info)
    check_integrity(one.core)
    assert one.plan() is None
    (order,) = ordered(one, 2)
    assert order.sources == ("file:/a",)
    loaded(one, order)
    (new,) = one.planned().new_sequences
    assert (new.emitted_token_ids, new.adapter_slot) == ((5,), 0)


@pytest.mark.parametrize("target", [SlotState.READY, SlotState.CLOSING])
def test_a_slot_makes_legal_moves_only(target: SlotState) -> None:
    with pytest.raises(AssertionError):
        AdapterSlot(0).advance(target)


def test_a_worker_without_plans_keeps_its_slots_as_they_are() -> None:
    one = cell(max_adapters=1)
    one.submit(1, [1, 2, 3], adapter=A)
    (order,) = ordered(one)
    loaded(one, order)
    one.submit(2, [4, 5, 6], adapter=B)
    worker = one.core.workers[one.info.worker_id]
    worker.aside.adapting.wanted[B].num_passed = MAX_PASSED
    worker.duty.is_paused = True
    # Whoever has the slot cannot start: others would get it in turns for ever.
    assert not ordered(one)
    (slot,) = worker.adapters.slots
    assert slot.state is SlotState.READY
    worker.duty.is_paused = False
    assert not ordered(one)
    assert slot.state is SlotState.CLOSING
    (order,) = ordered(one)
    assert order.adapter == B
