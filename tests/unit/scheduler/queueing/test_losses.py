"""What the core does when peers, steps or time are lost."""

import pytest
from unit.scheduler.cell import FRONTEND, Cell, said
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import FinishedEvent, RejectedEvent, TokensEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.data.token_logprobs import PackedLogprobs
from pagewire_scheduler.core.state.frontend import Held
from pagewire_shared.errors import WireError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.result import StepFailure, StepResult


def test_a_submit_of_the_same_epoch_is_a_resend() -> None:
    cell = Cell()
    cell.submit(1, [1, 2])
    cell.answer(cell.planned(), token=5)
    (event,) = cell.submit(1, [1, 2], handle=8)
    assert isinstance(event, TokensEvent)
    assert (event.handle, event.first_position, event.token_ids) == (8, 0, (5,))


def test_an_older_epoch_is_refused_and_a_newer_one_replaces() -> None:
    cell = Cell()
    cell.submit(1, [1, 2], epoch=2)
    first = cell.planned()
    (event,) = cell.submit(1, [1, 2], epoch=1, handle=7)
    assert isinstance(event, RejectedEvent)
    assert not cell.submit(1, [1, 2], epoch=3, handle=8, emitted=((5, 6),))
    assert not cell.answer(first), "tokens of the old epoch are dropped"
    plan = cell.planned()
    assert plan.new_sequences[0].emitted_token_ids == (5, 6)
    (event,) = cell.answer(plan)
    assert isinstance(event, TokensEvent)
    assert (event.epoch, event.first_position) == (3, 2)


def test_emitted_tokens_that_already_end_a_choice_run_no_step() -> None:
    cell = Cell()
    (event,) = cell.submit(1, [1, 2], epoch=1, emitted=((5, 9),), eos_token_ids=(9,))
    assert isinstance(event, FinishedEvent)
    assert (event.state, event.num_tokens) == (State.FINISHED_STOPPED, 2)
    assert cell.plan() is None


def test_a_lost_worker_costs_no_token_and_no_epoch() -> None:
    cell = Cell()
    cell.submit(1, [1, 2])
    cell.answer(cell.planned(), token=5)
    cell.planned()
    cell.core.detach_worker(cell.info.worker_id)
    check_integrity(cell.core)
    cell.info = worker_info(2)
    cell.core.attach_worker(cell.info)
    plan = cell.planned()
    assert plan.new_sequences[0].emitted_token_ids == (5,)
    (event,) = cell.answer(plan)
    assert isinstance(event, TokensEvent)
    assert (event.epoch, event.first_position) == (0, 1)


def test_results_of_another_life_are_dropped() -> None:
    cell = Cell()
    cell.submit(1, [1, 2])
    plan = cell.planned()
    assert not cell.core.apply(cell.info.worker_id, StepResult(2, 1, plan.step_id))
    assert not cell.core.apply(cell.info.worker_id, StepResult(3, 99, plan.step_id))
    assert not cell.core.apply(cell.info.worker_id, StepResult(3, 1, plan.step_id + 7))
    assert cell.answer(plan)


@pytest.mark.parametrize(
    "broken",
    [
        {"slots": [5]},
        {"counts": [2]},
        {"token_ids": []},
        {"token_ids": [40]},
        {"logprobs": [0.1, 0.2]},
        {"num_top": [1]},
    ],
)
def test_a_result_that_contradicts_its_plan_changes_nothing(broken: dict[str, object]) -> None:
    cell = Cell()
    cell.submit(1, [1, 2])
    plan = cell.planned()
    with pytest.raises(WireError):
        cell.answer(plan, **broken)
    check_integrity(cell.core)
    assert cell.answer(plan)


def test_logprobs_are_kept_for_a_resend() -> None:
    cell = Cell()
    cell.submit(1, [1, 2], sampling=SamplingParams(max_tokens=8, logprobs=2))
    plan = cell.planned()
    cell.answer(plan, logprobs=[-0.5], num_top=[2], top_token_ids=[9, 8], top_logprobs=[-0.5, -1.5])
    cell.core.detach_frontend(FRONTEND, now=0.0)
    (request_id,) = cell.core.requests
    held = [Held(request_id, 0, 4, (0,))]
    resumed, events = cell.core.attach_frontend(FRONTEND, held, is_same_generation=True)
    assert resumed == [4]
    (event,) = said(events)
    assert isinstance(event, TokensEvent)
    assert event.token_logprobs == (PackedLogprobs(-0.5, 0, (9, 8), (-0.5, -1.5)),)


def test_a_culprit_fails_and_its_neighbours_run_again() -> None:
    cell = Cell()
    cell.submit(1, [1] * 5)
    cell.submit(2, [2] * 5)
    first, second = cell.planned(), cell.planned()
    events = cell.answer(first, failure=StepFailure("boom", (first.slots[1],)))
    (end,) = [event for event in events if isinstance(event, FinishedEvent)]
    assert (end.handle, end.state) == (2, State.FINISHED_FAILED)
    assert end.error is not None
    assert "boom" in end.error.message
    assert not cell.answer(second), "planned on top of the failed step"
    again = cell.planned()
    assert [new.prompt_token_ids[0] for new in again.new_sequences] == [1]
    assert again.starts == [0], "nothing that the failed step named is believed"


def test_without_a_culprit_a_sequence_fails_at_its_second_failed_step() -> None:
    cell = Cell(steps_in_flight=1)
    cell.submit(1, [1] * 5)
    assert not cell.answer(cell.planned(), failure=StepFailure("boom"))
    (end,) = cell.answer(cell.planned(), failure=StepFailure("boom"))
    assert isinstance(end, FinishedEvent)
    assert end.state is State.FINISHED_FAILED


def test_the_culprit_of_a_failed_step_is_found_and_its_neighbours_go_on() -> None:
    cell = Cell(steps_in_flight=1)
    for number in range(1, 6):
        cell.submit(number, [number] * 5)
    slots = {}
    ends: list[FinishedEvent] = []
    steps = 0
    while (plan := cell.plan()) is not None and steps < 100:
        steps += 1
        slots |= {new.slot: new.prompt_token_ids[0] for new in plan.new_sequences}
        is_poisoned = any(slots[slot] == 3 for slot in plan.slots)
        failure = StepFailure("boom") if is_poisoned else None
        events = cell.answer(plan, failure=failure) if failure else cell.answer(plan)
        ends += [event for event in events if isinstance(event, FinishedEvent)]
    failed = [end.handle for end in ends if end.state is State.FINISHED_FAILED]
    assert failed == [3]
    assert sorted(end.handle for end in ends) == [1, 2, 3, 4, 5]


def test_names_that_a_void_step_left_on_the_worker_are_overwritten() -> None:
    cell = Cell()
    cell.submit(1, [1] * 5)
    first = cell.planned()
    cell.core.abort(FRONTEND, 1, None)
    cell.submit(2, [1] * 8 + [2])  # shares the block that the first step fails to write
    second = cell.planned()
    assert second.starts == [4]
    left = dict(zip(second.named_blocks, second.names, strict=True))
    cell.answer(first, failure=StepFailure("boom"))
    cell.core.abort(FRONTEND, 2, None)
    cell.answer(second)  # the worker believes that it went well
    plan = cell.planned()
    told = dict(zip(plan.named_blocks, plan.names, strict=True))
    assert left.keys() == told.keys()
    assert not set(left.values()) & set(told.values())
    assert left


def test_deadlines_and_leases_end_requests() -> None:
    cell = Cell()
    cell.submit(1, [1, 2], deadline=3.0)
    cell.submit(2, [1, 2])
    cell.planned()
    assert not cell.core.tick(2.9)
    (end,) = cell.core.tick(3.0)
    assert isinstance(end, FinishedEvent)
    assert (end.handle, end.state) == (1, State.FINISHED_ABORTED)
    assert end.error is not None
    assert end.error.code == "deadline_exceeded"
    cell.core.detach_frontend(FRONTEND, now=3.0)
    cell.core.tick(7.9)
    assert len(cell.core.requests) == 1
    cell.core.tick(8.0)
    assert not cell.core.requests
    assert not cell.core.frontends
    check_integrity(cell.core)


def test_held_blocks_of_a_worker_become_cache_again() -> None:
    cell = Cell()
    cell.submit(1, [1] * 9)
    plan = cell.planned()
    held = tuple(zip(plan.names, plan.named_blocks, strict=True))
    cell.core.detach_worker(cell.info.worker_id)
    cell.info = worker_info(1, incarnation=50, held=held)
    cell.core.attach_worker(cell.info)
    again = cell.planned()
    assert again.starts == [8]
    assert again.new_sequences[0].block_ids[:2] == tuple(plan.named_blocks)


def test_waiting_is_bounded() -> None:
    cell = Cell(max_num_waiting=2)
    assert not cell.submit(1, [1], emitted=((), ()), is_finished=(False, False))
    (event,) = cell.submit(2, [1])
    assert isinstance(event, RejectedEvent)
    assert event.error.code == "rate_limit_exceeded"


def test_priority_goes_before_arrival() -> None:
    cell = Cell(max_num_seqs=1, steps_in_flight=1)
    cell.submit(1, [1], priority=1)
    cell.submit(2, [2], priority=0)
    assert cell.planned().new_sequences[0].prompt_token_ids == (2,)
