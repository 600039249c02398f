"""Single behaviours of the core, each in the smallest cell that shows it."""

from typing import Any

import pytest
from unit.scheduler.cell import FRONTEND, Cell

from pagewire_scheduler.core.audit import audit
from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.data.events import FinishedEvent, RejectedEvent, TokensEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.params import SamplingParams


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


def test_choices_are_forked_from_the_one_that_computes_the_prompt() -> None:
    cell = Cell()
    cell.submit(1, [1] * 9, emitted=((), (), ()), is_finished=(False,) * 3)
    first, second = cell.planned(), cell.planned()
    assert len(first.new_sequences) == 1
    assert first.num_new_tokens == [9, 0, 0]
    assert first.samples == [1, 1, 1]
    assert first.fork_sources == [first.slots[0]] * 2
    assert first.fork_slots == first.slots[1:]
    assert first.fork_choices == [1, 2]
    # Position 9 goes into the last, partly written block: all but one of three write into copies.
    assert second.num_new_tokens == [1, 1, 1]
    assert second.copy_sources == [first.new_sequences[0].block_ids[-1]] * 2
    assert len(set(second.copy_destinations)) == 2
    assert not set(second.copy_destinations) & set(first.new_sequences[0].block_ids)


def test_a_prompt_that_fills_its_blocks_is_forked_without_copies() -> None:
    cell = Cell()
    cell.submit(1, [1] * 8, emitted=((), ()), is_finished=(False,) * 2)
    assert cell.planned().num_new_tokens == [8, 0]
    second = cell.planned()
    assert not second.copy_sources
    assert second.num_new_blocks == [1, 1]


def test_forks_of_a_prompt_in_chunks_are_told_of_the_newest_blocks() -> None:
    cell = Cell(max_num_batched_tokens=6, groups=CacheGroups((100,)))
    cell.submit(1, [1] * 11, emitted=((), ()), is_finished=(False,) * 2)
    first, second = cell.planned(), cell.planned()
    assert second.num_new_tokens == [5, 0]
    fresh = second.new_block_ids[: second.num_new_blocks[0]]
    assert fresh
    assert second.new_block_ids == fresh * 2
    assert len(first.new_sequences[0].block_ids) + len(fresh) == 3


def test_choices_without_a_slot_find_the_prompt_in_the_cache() -> None:
    cell = Cell(max_num_seqs=2)
    cell.submit(1, [1] * 9, emitted=((), (), ()), is_finished=(False,) * 3)
    plan = cell.planned()
    assert plan.num_new_tokens == [9, 0]
    while [new.choice for new in plan.new_sequences] != [2]:
        cell.answer(plan)
        plan = cell.planned()
    row = plan.slots.index(plan.new_sequences[0].slot)
    assert (plan.starts[row], plan.num_new_tokens[row]) == (8, 1)


def test_when_the_first_choice_ends_early_the_next_computes_the_prompt() -> None:
    cell = Cell()
    cell.submit(1, [1] * 9, emitted=((), (), ()), is_finished=(False,) * 3)
    cell.core.abort(FRONTEND, 1, 0)
    plan = cell.planned()
    assert plan.new_sequences[0].choice == 1
    assert plan.fork_choices == [2]


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
    cell.submit(1, [1] * 9)
    cell.submit(2, [1] * 9)
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


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("prompt", {"prompt": [1, 40]}),
        ("emitted", {"emitted": ((3,), (39, 40)), "is_finished": (False, True)}),
        ("stop_token_ids", {"sampling": SamplingParams(max_tokens=8, stop_token_ids=(39, 40))}),
    ],
)
def test_ids_outside_the_vocabulary_are_refused(field: str, fields: dict[str, Any]) -> None:
    cell = Cell()
    assert cell.info.model.vocab_size == 40
    (event,) = cell.submit(1, **{"prompt": [1], **fields})
    assert isinstance(event, RejectedEvent)
    assert isinstance(event.error, InvalidRequestError)
    assert event.error.field == field


def test_the_last_ids_of_the_vocabulary_and_foreign_eos_ids_are_accepted() -> None:
    cell = Cell()
    sampling = SamplingParams(max_tokens=8, stop_token_ids=(39,))
    fields = {"emitted": ((38,),), "sampling": sampling, "eos_token_ids": (40,)}
    assert not cell.submit(1, [39], **fields)
    assert cell.planned().slots
