"""Drafts: offers of the worker, grants in plans, and several tokens in a result."""

from typing import Any

import pytest
from unit.scheduler.cell import Cell, finished

from pagewire_scheduler.core.data.events import TokensEvent
from pagewire_scheduler.core.data.settings import CoreSettings
from pagewire_scheduler.core.planning.preemption import preempt
from pagewire_shared.errors import WireError
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan
from pagewire_shared.steps.result import StepFailure


def drafting_cell(**changes: Any) -> Cell:
    return Cell(**{"max_drafts": 4, "steps_in_flight": 2, **changes})


def tokens_of(events: list[Any]) -> list[int]:
    return [
        token for event in events if isinstance(event, TokensEvent) for token in event.token_ids
    ]


def several(plan: StepPlan, *tokens: int) -> dict[str, Any]:
    """The fields of an answer for the only slot of `plan`."""
    return {"counts": [len(tokens)], "token_ids": list(tokens)}


def test_a_sequence_with_drafts_is_not_planned_ahead() -> None:
    cell = drafting_cell()
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=20))
    first, second = cell.planned(), cell.planned()
    cell.answer(first, num_drafts=[3])
    assert cell.plan() is None  # the second step shows what the drafts are for
    cell.answer(second, num_drafts=[2])
    third = cell.planned()
    assert (third.starts, third.num_new_tokens, third.num_drafts) == ([4], [1], [2])
    assert cell.plan() is None
    events = cell.answer(third, **several(third, 7, 8, 9))
    assert tokens_of(events) == [7, 8, 9]
    fourth, fifth = cell.planned(), cell.planned()
    assert (fourth.starts, fourth.num_drafts) == ([7], [])
    assert fifth.starts == [8]


def test_without_offers_two_steps_are_under_way_as_ever() -> None:
    cell = drafting_cell()
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=20))
    first, second = cell.planned(), cell.planned()
    cell.answer(first, num_drafts=[])
    third = cell.planned()
    assert (second.num_drafts, third.num_drafts) == ([], [])


def test_an_older_offer_is_forgotten() -> None:
    cell = drafting_cell()
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=20))
    first, second = cell.planned(), cell.planned()
    cell.answer(first, num_drafts=[3])
    cell.answer(second)
    assert cell.planned().num_drafts == []
    assert cell.planned().num_drafts == []


@pytest.mark.parametrize(("max_tokens", "granted"), [(2, []), (3, [1]), (4, [2]), (9, [4])])
def test_no_more_drafts_than_tokens_are_left(max_tokens: int, granted: list[int]) -> None:
    cell = drafting_cell(steps_in_flight=1)
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=max_tokens))
    cell.answer(cell.planned(), num_drafts=[4])
    assert cell.planned().num_drafts == granted


def test_drafts_take_what_others_leave_of_a_step() -> None:
    cell = drafting_cell(steps_in_flight=1, max_num_batched_tokens=7)
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=20))
    cell.answer(cell.planned(), num_drafts=[4])
    cell.submit(2, [5, 6, 7, 8])
    plan = cell.planned()
    assert (plan.num_new_tokens, plan.num_drafts) == ([1, 4], [2, 0])
    cell.answer(plan, counts=[1, 1], num_drafts=[4, 0])
    cell.submit(3, [6] * 30)
    assert cell.planned().num_drafts == []


def test_drafts_take_free_blocks_and_preempt_nothing() -> None:
    def plan_with(num_blocks: int) -> StepPlan:
        cell = drafting_cell(steps_in_flight=1, num_blocks=num_blocks)
        cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=9))
        cell.submit(2, [4, 5, 6], sampling=SamplingParams(max_tokens=2))
        cell.answer(cell.planned(), num_drafts=[4, 0])
        return cell.planned()

    plan = plan_with(num_blocks=5)  # of 4 tokens; each sequence has one
    assert (plan.num_drafts, plan.num_new_blocks, len(plan.new_block_ids)) == ([4, 0], [1, 0], 1)
    plan = plan_with(num_blocks=4)
    assert (plan.num_drafts, plan.num_new_blocks) == ([], [0, 0])


def test_fresh_blocks_stand_in_the_order_of_the_slots() -> None:
    cell = drafting_cell(steps_in_flight=1, num_blocks=20)
    for number in (1, 2, 3):
        prompt = [number] * (3 if number == 2 else 4)
        cell.submit(number, prompt, sampling=SamplingParams(max_tokens=12))
    cell.answer(cell.planned(), num_drafts=[0, 4, 0])
    plan = cell.planned()
    assert (plan.num_new_blocks, plan.num_drafts) == ([1, 1, 1], [0, 4, 0])
    tables = [one.table.blocks for one in cell.core.workers[cell.info.worker_id].running]
    assert plan.new_block_ids == [table[-1] for table in tables]


@pytest.mark.parametrize(
    ("sampling", "tokens", "kept"),
    [
        (SamplingParams(max_tokens=20, stop_token_ids=[8]), [7, 8, 9], [7, 8]),
        (SamplingParams(max_tokens=20, stop_token_ids=[8], min_tokens=3), [8, 7, 8], [8, 7, 8]),
        (SamplingParams(max_tokens=4), [7, 8, 9], [7, 8, 9]),
    ],
)
def test_a_sequence_ends_among_right_drafts(
    sampling: SamplingParams, tokens: list[int], kept: list[int]
) -> None:
    cell = drafting_cell(steps_in_flight=1)
    cell.submit(1, [1, 2, 3], sampling=sampling)
    cell.answer(cell.planned(), num_drafts=[4])
    plan = cell.planned()
    events = cell.answer(plan, **several(plan, *tokens), num_drafts=[1])
    assert tokens_of(events) == kept
    (end,) = finished(events)
    assert end.num_tokens == 1 + len(kept)
    assert not cell.core.workers[cell.info.worker_id].drafts
    cell.run()


def test_log_probabilities_come_with_each_token() -> None:
    cell = drafting_cell(steps_in_flight=1)
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=20, logprobs=1))
    first = {"logprobs": [-1.0], "ranks": [1], "num_top": [1]}
    cell.answer(cell.planned(), num_drafts=[2], top_token_ids=[9], top_logprobs=[-1.0], **first)
    plan = cell.planned()
    events = cell.answer(
        plan,
        **several(plan, 5, 6),
        logprobs=[-2.0, -3.0],
        ranks=[2, 3],
        num_top=[1, 1],
        top_token_ids=[1, 2],
        top_logprobs=[-0.5, -0.25],
    )
    assert tokens_of(events) == [5, 6]
    kept = next(event for event in events if isinstance(event, TokensEvent)).logprobs
    assert kept is not None
    assert list(kept.logprobs) == [-1.0, -2.0, -3.0]


def test_the_right_drafts_of_a_preempted_sequence_count() -> None:
    cell = drafting_cell(steps_in_flight=1, num_blocks=6, is_caching=False)
    cell.submit(1, [1] * 5, sampling=SamplingParams(max_tokens=16))
    cell.submit(2, [2] * 5, sampling=SamplingParams(max_tokens=16))
    cell.answer(cell.planned(), num_drafts=[0, 1])
    plan = cell.planned()
    assert plan.num_drafts == [0, 1]
    worker = cell.core.workers[cell.info.worker_id]
    young = worker.running[1]
    preempt(worker, young)
    events = cell.answer(plan, counts=[1, 2], token_ids=[9, 5, 6])
    assert tokens_of(events) == [9, 5, 6]
    assert (len(young.tokens), young.num_computed, young.num_in_flight) == (8, 0, 0)
    assert len(finished(cell.run())) == 2


def test_a_failed_step_forgets_its_drafts() -> None:
    cell = drafting_cell(steps_in_flight=1)
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=8))
    cell.answer(cell.planned(), num_drafts=[2])
    plan = cell.planned()
    assert plan.num_drafts == [2]
    cell.answer(plan, failure=StepFailure("odd"), slots=[], counts=[], token_ids=[])
    assert not cell.core.workers[cell.info.worker_id].drafts
    assert len(finished(cell.run())) == 1


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"counts": [4], "token_ids": [1, 2, 3, 4]}, "one token per sampled slot"),
        ({"counts": [0], "token_ids": []}, "one token per sampled slot"),
        ({"counts": [2], "token_ids": [1]}, "as many tokens as it counts"),
        ({"num_drafts": [5]}, "offers more than 4 drafts"),
        ({"num_drafts": [1, 1]}, "one entry per slot"),
        ({"num_predicted": [1, 1]}, "one entry per slot"),
        ({"num_predicted": [3]}, "more predicted drafts than were granted"),
    ],
)
def test_a_result_that_contradicts_its_grants_is_refused(
    fields: dict[str, Any], reason: str
) -> None:
    cell = drafting_cell(steps_in_flight=1)
    cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=20))
    cell.answer(cell.planned(), num_drafts=[2])
    plan = cell.planned()
    with pytest.raises(WireError, match=reason):
        cell.answer(plan, **fields)


def test_predicted_tokens_reach_the_worker_and_are_counted() -> None:
    cell = drafting_cell(steps_in_flight=1)
    sampling = SamplingParams(max_tokens=5)
    cell.submit(1, [1, 2, 3], sampling=sampling, predicted_token_ids=[9, 7, 8], salt=b"salt")
    first = cell.planned()
    (new,) = first.new_sequences
    assert new.predicted_token_ids == [9, 7, 8]
    assert len(new.draft_scope) == 16
    cell.answer(first, num_drafts=[2])
    second = cell.planned()
    cell.answer(second, **several(second, 7, 8), num_predicted=[2], num_drafts=[1])
    third = cell.planned()
    (end,) = finished(cell.answer(third, **several(third, 5, 6), num_predicted=[1]))
    assert (end.num_accepted_predicted, end.num_rejected_predicted) == (2, 1)


def test_a_worker_without_drafts_gets_no_prediction() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], predicted_token_ids=[9, 7, 8], salt=b"salt")
    (new,) = cell.planned().new_sequences
    assert (list(new.predicted_token_ids), new.draft_scope) == ([], b"")


def test_each_right_draft_is_charged_to_its_tenant() -> None:
    def served(num_right: int) -> float:
        cell = drafting_cell(steps_in_flight=1, settings=CoreSettings(generation=3, policy="fair"))
        cell.submit(1, [1, 2, 3], sampling=SamplingParams(max_tokens=20))
        cell.answer(cell.planned(), num_drafts=[2])
        plan = cell.planned()
        cell.answer(plan, **several(plan, *range(1 + num_right)))
        return cell.core.policy.ledger.served("")  # type: ignore[attr-defined, no-any-return]

    assert served(2) - served(0) == 2 * (served(1) - served(0)) > 0
