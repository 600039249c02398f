"""A result that names slots as broken: their sequences fail, all else in it holds."""

import pytest
from unit.scheduler.cell import FRONTEND, Cell, finished

from pagewire_scheduler.core.data.events import TokensEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.errors import WireError

BROKEN = "the numbers are not finite"


def broken(*slots: int) -> dict[str, object]:
    """Return the fields of a result that says so of `slots`."""
    return {"failed_slots": list(slots), "failed_reason": BROKEN}


def test_a_broken_sequence_fails_and_its_neighbour_keeps_its_token() -> None:
    cell = Cell()
    cell.submit(1, [1] * 5)
    cell.submit(2, [2] * 5)
    first, second = cell.planned(), cell.planned()
    events = cell.answer(first, **broken(first.slots[1]))
    (end,) = finished(events)
    assert (end.handle, end.state) == (2, State.FINISHED_FAILED)
    assert end.error is not None
    assert BROKEN in end.error.message
    (told,) = [event for event in events if isinstance(event, TokensEvent)]
    assert (told.handle, told.token_ids) == (1, (9,))
    # The step behind it holds for the neighbour, and its token of the broken one is dropped.
    (told,) = [event for event in cell.answer(second, 7) if isinstance(event, TokensEvent)]
    assert (told.handle, told.token_ids) == (1, (7,))
    again = cell.planned()
    assert again.freed_slots == [first.slots[1]]
    assert [again.slots, again.starts] == [[first.slots[0]], [6]]
    ends = finished([*cell.answer(again), *cell.run()])
    assert [(end.handle, end.state) for end in ends] == [(1, State.FINISHED_LENGTH)]


def test_what_it_named_is_not_believed() -> None:
    cell = Cell()
    cell.submit(1, [1] * 9)
    first = cell.planned()
    assert len(first.named_blocks) == 2
    second = cell.planned()
    cell.answer(first, **broken(first.slots[0]))
    cell.answer(second)
    cell.submit(2, [1] * 9)
    plan = cell.planned()
    assert plan.starts == [0]


def test_whoever_read_its_blocks_already_computes_them_again() -> None:
    cell = Cell()
    cell.submit(1, [1] * 9)
    first = cell.planned()
    cell.submit(2, [1] * 8 + [2])
    second = cell.planned()
    assert 8 in second.starts, "it shares blocks of a step that has not returned"
    (end,) = finished(cell.answer(first, **broken(first.slots[0])))
    assert end.handle == 1
    assert not cell.answer(second), "it was computed on what is broken"
    again = cell.planned()
    assert again.starts == [0]
    ends = finished([*cell.answer(again), *cell.run()])
    assert [(end.handle, end.state) for end in ends] == [(2, State.FINISHED_LENGTH)]


def test_a_prompt_in_the_middle_fails_at_once() -> None:
    cell = Cell(max_num_batched_tokens=8)
    cell.submit(1, [1] * 20)
    plan = cell.planned()
    assert plan.samples == [0]
    (end,) = finished(cell.answer(plan, **broken(plan.slots[0])))
    assert end.state is State.FINISHED_FAILED
    assert not finished(cell.run())


def test_all_choices_of_a_broken_prompt_fail() -> None:
    cell = Cell()
    cell.submit(1, [1] * 5, emitted=((), ()), is_finished=(False, False))
    plan = cell.planned()
    ends = finished(cell.answer(plan, **broken(*plan.slots)))
    while (plan := cell.plan()) is not None:
        ends += finished(cell.answer(plan, **broken(*plan.slots)))
    assert [end.state for end in ends] == [State.FINISHED_FAILED] * 2


def test_who_has_left_meanwhile_is_nobody() -> None:
    cell = Cell()
    cell.submit(1, [1] * 5)
    cell.submit(2, [2] * 5)
    plan = cell.planned()
    cell.core.abort(FRONTEND, 2, None)
    events = cell.answer(plan, **broken(plan.slots[1]))
    assert not finished(events)
    assert len(events) == 1


def test_a_slot_that_is_not_in_the_plan_is_refused() -> None:
    cell = Cell()
    cell.submit(1, [1] * 5)
    plan = cell.planned()
    with pytest.raises(WireError, match="failed_slots"):
        cell.answer(plan, **broken(77))
