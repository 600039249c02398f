"""Sequences whose masks are late: planned again with pauses, and never in others' way."""

from itertools import pairwise

import pytest
from unit.scheduler.cell import Cell, finished
from unit.scheduler.core.test_grammars import asked, note

from pagewire_scheduler.core.data.events import TokensEvent
from pagewire_scheduler.core.planning.left_out import (
    MAX_PAUSE,
    MAX_RETRIES_ALONE,
    MAX_RETRIES_PER_STEP,
)
from pagewire_shared.errors import WireError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams
from pagewire_shared.steps.plan import StepPlan


def guided_cell(num_guided: int, *, max_tokens: int = 100, **changes: object) -> Cell:
    """Return a cell with requests 1 to `num_guided` that follow a grammar, which it has."""
    cell = Cell(**changes)  # type: ignore[arg-type]
    outputs = StructuredOutputsParams(regex="a+")
    sampling = SamplingParams(max_tokens=max_tokens, structured_outputs=outputs)
    for number in range(1, num_guided + 1):
        cell.submit(number, [number] * 9, sampling=sampling)
    (grammar_id,) = asked(cell)
    note(cell, grammar_id)
    return cell


def slots_of(plan: StepPlan) -> list[int]:
    return [slot for slot, sample in zip(plan.slots, plan.samples, strict=True) if sample]


def leave_out(cell: Cell, plan: StepPlan, slots: set[int], **fields: object) -> list[object]:
    counts = [int(slot not in slots) for slot in slots_of(plan)]
    return list(cell.answer(plan, counts=counts, token_ids=[9] * sum(counts), **fields))


def test_the_last_token_is_computed_again_and_what_was_planned_on_top_is_void() -> None:
    cell = guided_cell(1, steps_in_flight=2)
    first, second = cell.planned(), cell.planned()
    assert (second.starts, second.samples) == ([9], [1])
    assert not leave_out(cell, first, {0})
    assert not leave_out(cell, second, {0})
    third = cell.planned()
    assert (third.slots, third.starts, third.num_new_tokens, third.samples) == ([0], [8], [1], [1])
    fourth = cell.planned()
    assert fourth.starts == [9]
    (event,) = cell.answer(third)
    assert isinstance(event, TokensEvent)
    assert (event.first_position, event.token_ids) == (0, (9,))
    (event,) = cell.answer(fourth)
    assert isinstance(event, TokensEvent)
    assert event.first_position == 1


def test_a_step_on_top_of_a_missing_token_must_not_return_one() -> None:
    cell = guided_cell(1, steps_in_flight=2)
    first, second = cell.planned(), cell.planned()
    leave_out(cell, first, {0})
    with pytest.raises(WireError, match="one token per sampled slot"):
        cell.answer(second)


def test_only_who_has_a_grammar_may_be_left_out() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3])
    with pytest.raises(WireError, match="one token per sampled slot"):
        leave_out(cell, cell.planned(), {0})


def test_a_slot_that_sampled_cannot_be_given_up() -> None:
    cell = guided_cell(1)
    with pytest.raises(WireError, match="gave up slots"):
        cell.answer(cell.planned(), given_up={0: "because"})


def test_it_pauses_while_others_run_and_is_tried_again() -> None:
    cell = guided_cell(1)
    cell.submit(2, [7] * 5, sampling=SamplingParams(max_tokens=200))
    tried = []
    for turn in range(45):
        plan = cell.planned()
        assert 1 in plan.slots  # the other one is in every step
        if 0 in plan.slots:
            tried.append(turn)
        leave_out(cell, plan, {0} & set(plan.slots))
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses == sorted(pauses)
    assert max(pauses) <= MAX_PAUSE + 1
    assert len(tried) < 8


def test_few_of_them_share_a_step_with_others_and_all_get_on() -> None:
    cell = guided_cell(8, max_tokens=1)
    cell.submit(9, [7] * 5, sampling=SamplingParams(max_tokens=300))
    plan = cell.planned()
    other = plan.slots[-1]
    leave_out(cell, plan, set(plan.slots) - {other})
    ends = []
    left_out: set[int] = set()
    for turn in range(55):
        plan = cell.planned()
        assert len(left_out & set(plan.slots)) <= MAX_RETRIES_PER_STEP
        late = {slot for slot in plan.slots if slot != other and turn % 2}
        left_out = (left_out - set(plan.slots)) | late
        ends += finished(leave_out(cell, plan, late))  # type: ignore[arg-type]
    assert len(ends) == 8


def test_alone_they_are_tried_without_a_pause() -> None:
    cell = guided_cell(6, max_tokens=3)
    leave_out(cell, cell.planned(), set(range(6)))
    for _ in range(20):
        plan = cell.planned()
        assert len(plan.slots) <= MAX_RETRIES_ALONE
        leave_out(cell, plan, set(plan.slots))


def test_one_that_is_given_up_ends_alone_and_says_why() -> None:
    cell = guided_cell(2)
    plan = cell.planned()
    events = leave_out(cell, plan, {1}, given_up={1: "the grammar is too costly"})
    (end,) = finished(events)  # type: ignore[arg-type]
    assert end.error is not None
    assert end.error.message == "structured_outputs: the grammar is too costly"
    assert (end.error.field, end.error.code) == ("structured_outputs", "invalid_grammar")
    (token,) = (event for event in events if isinstance(event, TokensEvent))
    assert token.handle == 1
    assert cell.planned().slots == [0]


def test_a_slot_is_given_to_whoever_waits_and_taken_again_later() -> None:
    cell = guided_cell(4, max_num_seqs=4, max_tokens=3)
    for _ in range(3):
        plan = cell.planned()
        leave_out(cell, plan, set(plan.slots))
    cell.submit(9, [7] * 5, sampling=SamplingParams(max_tokens=4))
    plan = cell.planned()
    (new,) = plan.new_sequences
    assert new.request_id[0] == 9
    events: list[object] = []
    late = True
    for _ in range(60):
        slots = set(plan.slots) - {new.slot} if late else set()
        events += leave_out(cell, plan, slots)
        late = not finished(events)  # type: ignore[arg-type]
        if (found := cell.plan()) is None:
            break
        plan = found
    ends = [event.request_id[0] for event in finished(events)]  # type: ignore[arg-type]
    assert ends[0] == 9
    assert sorted(ends) == [1, 2, 3, 4, 9]


def test_one_that_is_left_out_with_drafts_loses_them_and_nothing_else() -> None:
    cell = guided_cell(2, steps_in_flight=1, max_drafts=4)
    cell.answer(cell.planned(), num_drafts=[3, 2])
    plan = cell.planned()
    assert (plan.starts, plan.num_drafts) == ([9, 9], [3, 2])
    # The first is late; the second has one right draft.
    cell.answer(plan, counts=[0, 2], token_ids=[7, 8], num_drafts=[0, 1])
    plans = [cell.planned()]
    assert (plans[0].slots, plans[0].starts, plans[0].num_drafts) == ([1], [11], [1])
    while 0 not in plans[-1].slots:
        cell.answer(plans[-1])
        plans.append(cell.planned())
    at = plans[-1].slots.index(0)
    assert (plans[-1].starts[at], plans[-1].num_new_tokens[at]) == (9, 1)
    assert plans[-1].num_drafts == []
    assert len(finished(cell.run())) == 0
    cell.answer(plans[-1])
    assert len(finished(cell.run())) == 2
