"""Adapters have slots on a worker; requests wait for theirs, in turn, and delay no others."""

import random

import pytest
from unit.scheduler.adapter_cell import (
    A,
    B,
    C,
    D,
    cell,
    load_all,
    loaded,
    ordered,
    started,
    state_of,
)
from unit.scheduler.cell import Cell, finished
from unit.scheduler.hellos import MODEL, worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import RejectedEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.state.adapters import SlotLoad
from pagewire_shared.errors import InternalError
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.pooling import PoolingParams


def test_it_waits_for_the_load_and_others_do_not() -> None:
    one = cell()
    one.submit(1, [1, 2, 3], adapter=A, adapter_sources=("file:/a",))
    one.submit(2, [4, 5, 6])
    (order,) = ordered(one)
    assert (order.adapter, order.slot, order.sources) == (A, 0, ("file:/a",))
    assert started(one.planned()) == [(2, None)]
    assert state_of(one, 1) is State.WAITING_FOR_ADAPTER
    assert not ordered(one)
    loaded(one, order)
    assert started(one.planned()) == [(1, 0)]


def test_waits_for_adapters_are_measured() -> None:
    one = cell(max_adapters=1)
    now, waits = [5.0], list[float]()
    one.submit(1, [1, 2, 3], adapter=A)
    one.core.workers[one.info.worker_id].aside.adapting.watch(lambda: now[0], waits.append)
    (order,) = ordered(one)
    now[0] = 7.0
    one.submit(2, [1, 2, 3], adapter=A)
    one.submit(3, [1, 2, 3], adapter=B)
    now[0] = 8.0
    loaded(one, order)
    assert waits == [3.0, 1.0]
    one.run()
    (order,) = ordered(one)
    loaded(one, order, InternalError("no"))
    assert waits == [3.0, 1.0], "of those that got it"


def test_requests_with_one_adapter_share_a_slot_and_a_load() -> None:
    one = cell()
    for number in (1, 2, 3):
        one.submit(number, [1, 2, 3], adapter=A if number < 3 else B)
    assert load_all(one) == [A, B]
    assert started(one.planned()) == [(1, 0), (2, 0), (3, 1)]


def test_blocks_of_an_adapter_are_found_under_it_alone() -> None:
    one = cell()
    for number, adapter in enumerate((A, A, B, b""), 1):
        one.submit(number, [1, 2, 3, 4, 5], adapter=adapter)
        load_all(one)
        plan = one.planned()
        starts = dict(zip(plan.slots, plan.starts, strict=True))
        assert list(starts.values()) == [4 if number == 2 else 0]
        one.answer(plan)
        one.run()


def test_a_load_that_fails_ends_those_who_wait_for_it_and_nobody_else() -> None:
    one = cell(1)
    one.submit(1, [1, 2], adapter=A, emitted=((), ()))
    one.submit(2, [1, 2], adapter=B)
    (order,) = ordered(one)
    ended = finished(loaded(one, order, InternalError("not found")))
    assert [(event.handle, event.state) for event in ended] == [(1, State.FINISHED_FAILED)] * 2
    assert ended[0].error is not None
    assert ended[0].error.message == "not found"
    assert load_all(one) == [B]
    plan = one.planned()
    assert started(plan) == [(2, 0)]
    one.submit(3, [1, 2], adapter=A)  # another request may try again
    one.answer(plan)
    one.run()
    assert load_all(one) == [A]


def test_a_request_may_go_elsewhere_while_it_waits() -> None:
    one = cell()
    other = worker_info(2, max_adapters=1)
    one.submit(1, [1, 2, 3], adapter=A)
    one.core.attach_worker(other)
    one.core.drain_worker(one.info.worker_id)
    check_integrity(one.core)
    assert one.core.is_drained(one.info.worker_id)
    assert [order.adapter for order in ordered(one, 2)] == [A]


def test_the_worker_that_has_the_adapter_is_preferred_then_one_that_had_it() -> None:
    one = cell()
    warm = worker_info(2, max_adapters=2, warm_adapters=(A, B))
    one.core.attach_worker(warm)
    one.submit(1, [1, 2, 3], adapter=A)
    assert not ordered(one)
    (order,) = ordered(one, 2)
    one.core.note_adapter(warm.worker_id, order.load_id, None)
    for number in range(2, 6):
        one.submit(number, [1, 2, number], adapter=A)
    assert not ordered(one)
    assert one.core.workers[warm.worker_id].num_sequences == 5


def test_no_request_goes_to_a_worker_without_slots() -> None:
    one = Cell()
    (event,) = one.submit(1, [1, 2, 3], adapter=A)
    assert isinstance(event, RejectedEvent)
    assert event.error.field == "adapter"
    assert "--enable-lora" in event.error.message
    shapes = {"max_adapters": 1, "max_adapter_rank": 8, "adapter_shapes": b"a"}
    one.core.attach_worker(worker_info(2, **shapes))
    assert not one.submit(2, [1, 2, 3], adapter=A)
    check_integrity(one.core)
    assert [order.adapter for order in ordered(one, 2)] == [A]
    ((model, _),) = one.core.models()
    assert model.max_adapter_rank == 8
    for number, own in enumerate((b"b", b"a", b""), start=3):
        one.core.attach_worker(worker_info(number, **{**shapes, "adapter_shapes": own}))
    ((model, _),) = one.core.models()
    assert model.adapter_shapes == (b"a", b"b"), "the different ones"


def test_forks_beams_and_vectors_use_the_adapter_of_their_request() -> None:
    one = cell(1, model=MODEL.__class__(**{**_fields(MODEL), "embedding_size": 2}))
    one.submit(1, [1, 2, 3], adapter=A, emitted=((), (), ()))
    one.submit(
        2,
        [1, 2, 3],
        adapter=A,
        emitted=((), ()),
        beam_search=BeamParams(),
        sampling=SamplingParams(max_tokens=2, use_beam_search=True, n=2, temperature=0.0),
    )
    one.submit(3, [1, 2, 3], adapter=A, pooling=PoolingParams())
    load_all(one)
    plan = one.planned()
    assert [slot for _, slot in started(plan)] == [0, 0, 0]
    slots = one.core.workers[one.info.worker_id].adapters.slots
    assert slots[0].num_users == 5
    for handle in (1, 2, 3):
        one.core.abort(b"f" * 16, handle, None)
    assert slots[0].num_users == 5


def _fields(model: object) -> dict[str, object]:
    return {name: getattr(model, name) for name in model.__slots__}  # type: ignore[attr-defined]


def test_an_abort_and_a_deadline_end_who_waits_for_an_adapter() -> None:
    one = cell()
    one.submit(1, [1, 2], adapter=A, emitted=((), ()))
    one.submit(2, [1, 2], adapter=A, deadline=1.0)
    one.submit(3, [1, 2], adapter=B, deadline=1.0)
    one.core.abort(b"f" * 16, 1, None)
    (first, second) = ordered(one)
    assert len(finished(one.core.tick(2.0))) == 2
    check_integrity(one.core)
    assert not loaded(one, first)
    assert not loaded(one, second)
    assert not one.core.requests


def test_a_preempted_one_gives_its_adapter_up() -> None:
    one = cell(1, num_blocks=8, max_num_seqs=2)
    one.submit(1, [1, 2, 3, 4, 5], adapter=A, sampling=SamplingParams(max_tokens=16))
    load_all(one)
    one.submit(2, [5, 4, 3, 2, 1], adapter=A, sampling=SamplingParams(max_tokens=16))
    for _ in range(100):
        for order in ordered(one):
            loaded(one, order)
        plan = one.plan()
        if plan is None:
            break
        one.answer(plan)
    assert not one.core.requests
    assert one.core.counts.num_preemptions
    assert not one.core.workers[one.info.worker_id].adapters.slots[0].num_users


def test_an_answer_to_an_unknown_load_changes_nothing() -> None:
    one = cell()
    one.submit(1, [1, 2], adapter=A)
    (order,) = ordered(one)
    assert not one.core.note_adapter(one.info.worker_id, order.load_id + 1, None)
    assert state_of(one, 1) is State.WAITING_FOR_ADAPTER
    loaded(one, order)
    loaded(one, order)
    assert started(one.planned()) == [(1, 0)]


@pytest.mark.parametrize("seed", range(6))
def test_random_work_ends_and_uses_the_right_adapters(seed: int) -> None:
    dice = random.Random(seed)
    one = cell(
        dice.choice([1, 2, 3]),
        num_blocks=dice.choice([8, 12, 24]),
        max_num_seqs=dice.choice([2, 4]),
    )
    slots: dict[int, bytes] = {}
    waiting: list[SlotLoad] = []
    plans = []
    wanted: dict[int, bytes] = {}
    number = 0
    for turn in range(1200):
        if turn < 300 and dice.random() < 0.4 and number < 250:
            number += 1
            wanted[number] = dice.choice([A, B, C, D, b""])
            one.submit(
                number,
                [dice.randrange(5) for _ in range(dice.randrange(1, 12))],
                adapter=wanted[number],
                emitted=((),) * dice.choice([1, 1, 3]),
                sampling=SamplingParams(max_tokens=dice.randrange(1, 9)),
                priority=dice.choice([0, 0, -1]),
            )
        if dice.random() < 0.05 and number:
            one.core.abort(b"f" * 16, dice.randrange(1, number + 1), None)
        waiting += ordered(one)
        if waiting and dice.random() < 0.6:
            order = waiting.pop(dice.randrange(len(waiting)))
            is_bad = dice.random() < 0.1
            loaded(one, order, InternalError("bad") if is_bad else None)
            slots[order.slot] = b"" if is_bad else order.adapter
        plan = one.plan() if dice.random() < 0.8 else None
        if plan is not None:
            plans.append(plan)
            for new in plan.new_sequences:
                adapter = slots[new.adapter_slot] if new.adapter_slot is not None else b""
                assert adapter == wanted[new.request_id[0]]
        if plans and dice.random() < 0.7:
            one.answer(plans.pop(0))
    assert not one.core.requests, "some work never ended"
