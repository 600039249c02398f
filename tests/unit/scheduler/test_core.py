"""Single behaviours of the core, each in the smallest cell that shows it."""

from dataclasses import replace

import pytest
from pagewire_scheduler.core.audit import audit, check_integrity
from pagewire_scheduler.core.events import Event, FinishedEvent, RejectedEvent, TokensEvent
from pagewire_scheduler.core.frontend_state import Held
from pagewire_scheduler.core.request import Submission, TokenLogprobs
from pagewire_scheduler.core.scheduler_core import CoreSettings, SchedulerCore
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.step import StepFailure, StepPlan, StepResult
from pagewire_shared.errors import WireError
from pagewire_shared.ids import RequestId
from pagewire_shared.sampling import SamplingParams
from unit.scheduler.simulated_frontend import worker_info

FRONTEND = b"f" * 16


class Cell:
    """A core with one frontend and one worker, answered by hand."""

    def __init__(self, *, is_caching: bool = True, max_num_waiting: int = 100, **changes: object):
        settings = CoreSettings(
            generation=3, is_caching=is_caching, max_num_waiting=max_num_waiting, lease_seconds=5.0
        )
        self.core = SchedulerCore(settings)
        self.core.attach_frontend(FRONTEND, [], is_same_generation=False)
        self.info = worker_info(1, **changes)
        self.core.attach_worker(self.info)

    def submit(self, number: int, prompt: list[int], **fields: object) -> list[Event]:
        values: dict[str, object] = {
            "request_id": RequestId(bytes([number]) * 16),
            "epoch": 0,
            "handle": number,
            "model": "tiny",
            "prompt_token_ids": tuple(prompt),
            "emitted": ((),),
            "is_finished": (False,),
            "sampling": SamplingParams(max_tokens=8),
        }
        return self.core.submit(FRONTEND, Submission(**{**values, **fields}))  # type: ignore[arg-
        type]

    def plan(self) -> StepPlan | None:
        plan = self.core.plan(self.info.worker_id)
        check_integrity(self.core)
        return plan

    def planned(self) -> StepPlan:
        plan = self.plan()
        assert plan is not None
        return plan

    def answer(self, plan: StepPlan, token: int = 9, **fields: object) -> list[Event]:
        slots = [s for s, is_sampled in zip(plan.slots, plan.samples, strict=True) if is_sampled]
        result = StepResult(3, plan.incarnation, plan.step_id, slots, [1] * len(slots))
        result.token_ids.extend([token] * len(slots))
        events = self.core.apply(self.info.worker_id, replace(result, **fields))  # type:
        ignore[arg-type] check_integrity(self.core) return events


def test_a_long_prompt_is_computed_in_chunks_and_sampled_once() -> None:
    cell = Cell(max_num_batched_tokens=10)
    cell.submit(1, [1] * 25)
    plans = [cell.planned(), cell.planned()]
    assert cell.plan() is None, "no more than two steps in flight"
    cell.answer(plans[0])
    plans.append(cell.planned())
    assert [plan.num_new_tokens for plan in plans] == [[10], [10], [5]]
    assert [plan.samples for plan in plans] == [[0], [0], [1]]


def test_the_second_step_counts_on_the_token_of_the_first() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3])
    first, second = cell.planned(), cell.planned()
    assert (first.starts, first.num_new_tokens) == ([0], [3])
    assert (second.starts, second.num_new_tokens, second.samples) == ([3], [1], [1])


def test_nothing_is_planned_beyond_the_length_limit() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=1))
    plan = cell.planned()
    assert cell.plan() is None
    events = cell.answer(plan)
    assert [type(event) for event in events] == [TokensEvent, FinishedEvent]
    assert isinstance(events[1], FinishedEvent)
    assert events[1].state is State.FINISHED_LENGTH
    freed = cell.planned()
    assert (freed.freed_slots, freed.slots) == ([0], [])


def test_slot_and_blocks_stay_until_the_step_that_names_them_returns() -> None:
    cell = Cell(max_num_seqs=1)
    cell.submit(1, [1, 2, 3], eos_token_ids=(9,))
    cell.submit(2, [4, 5, 6])
    first, second = cell.planned(), cell.planned()
    cell.answer(first, token=9)
    assert cell.plan() is None, "the only slot is still named by the second step"
    assert audit(cell.core).pools[0].num_held > 0
    assert not cell.answer(second, token=9), "the token after the end is dropped"
    third = cell.planned()
    assert third.freed_slots == [0]
    assert third.new_sequences[0].prompt_token_ids == (4, 5, 6)


def test_min_tokens_holds_back_stop_tokens() -> None:
    cell = Cell()
    sampling = SamplingParams(max_tokens=8, min_tokens=2, stop_token_ids=(9,))
    cell.submit(1, [1], sampling=sampling)
    ends = []
    plans = [cell.planned(), cell.planned()]
    for _ in range(3):
        ends = [e for e in cell.answer(plans.pop(0)) if isinstance(e, FinishedEvent)]
        if not ends and (plan := cell.plan()):
            plans.append(plan)
    assert ends[0].num_tokens == 3
    assert ends[0].stop_token_id == 9


def test_choices_share_the_blocks_of_their_prompt_in_one_step() -> None:
    cell = Cell()
    cell.submit(1, [1] * 9, emitted=((), (), ()), is_finished=(False,) * 3)
    plan = cell.planned()
    assert plan.num_new_tokens == [9, 1, 1]
    tables = [new.block_ids for new in plan.new_sequences]
    assert tables[0][:2] == tables[1][:2] == tables[2][:2]
    assert len({table[2] for table in tables}) == 3


def test_a_block_of_sampled_tokens_is_named_in_the_plan_after_they_are_applied() -> None:
    cell = Cell()
    cell.submit(1, [1, 2])  # blocks of 4: positions 2 and 3 are sampled
    plans = [cell.planned(), cell.planned()]
    named = []
    for _ in range(4):
        cell.answer(plans.pop(0))
        plans.append(cell.planned())
        named.append(plans[-1].named_blocks)
    # Answers 1 and 2 are the tokens at positions 2 and 3; position 3 is computed by step 3.
    assert named[0] == []
    assert [len(blocks) for blocks in named].count(1) == 1


def test_without_caching_nothing_is_named() -> None:
    cell = Cell(is_caching=False)
    cell.submit(1, [1] * 9, emitted=((), ()), is_finished=(False, False))
    plan = cell.planned()
    assert plan.num_new_tokens == [9, 9]
    assert not plan.named_blocks


def test_the_youngest_gives_way_and_comes_back() -> None:
    cell = Cell(num_blocks=6, steps_in_flight=1, is_caching=False)
    cell.submit(1, [1] * 8, sampling=SamplingParams(max_tokens=16))
    cell.submit(2, [2] * 8, sampling=SamplingParams(max_tokens=16))
    outputs: dict[int, int] = {1: 0, 2: 0}
    was_preempted = False
    for _ in range(60):
        plan = cell.plan()
        if plan is None:
            break
        for event in cell.answer(plan):
            if isinstance(event, TokensEvent):
                outputs[event.handle] += len(event.token_ids)
        older, younger = [r.sequences[0] for r in cell.core.requests.values()] + [None] * (
            2 - len(cell.core.requests)
        )
        if younger is not None:
            assert older is not None
            assert older.state is not State.PREEMPTED
            was_preempted |= younger.state is State.PREEMPTED
    assert was_preempted
    assert outputs == {1: 16, 2: 16}
    assert cell.core.counts.num_preemptions > 0


def test_what_can_never_fit_is_refused() -> None:
    cell = Cell(num_blocks=4)
    (event,) = cell.submit(1, [1] * 10, sampling=SamplingParams(max_tokens=20))
    assert isinstance(event, RejectedEvent)
    assert event.error.code == "context_length_exceeded"
    assert not cell.core.requests


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
    held = [Held(RequestId(bytes([1]) * 16), 0, 4, (0,))]
    resumed, (event,) = cell.core.attach_frontend(FRONTEND, held, is_same_generation=True)
    assert resumed == [4]
    assert isinstance(event, TokensEvent)
    assert event.logprobs == (TokenLogprobs(-0.5, (9, 8), (-0.5, -1.5)),)


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
