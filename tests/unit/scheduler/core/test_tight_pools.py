"""Pools with little room: what an eviction really frees, and trials that are short of blocks."""

from dataclasses import replace

from unit.scheduler.cell import Cell
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.blocks.cache_groups import CacheGroups
from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.result import StepFailure

TWELVE = SamplingParams(max_tokens=12, ignore_eos=True)
MODEL = replace(worker_info(1).model, vocab_size=1000, max_model_len=100)


def test_nobody_is_evicted_for_blocks_that_others_hold_too() -> None:
    cell = Cell(
        model=MODEL,
        num_blocks=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        steps_in_flight=1,
    )
    shared = list(range(1, 33))
    cell.submit(1, [*shared, 99], sampling=SamplingParams(max_tokens=20, ignore_eos=True))
    for number in (2, 3, 4):
        cell.submit(number, [*shared, 100 + number], sampling=TWELVE, priority=5)
    for _ in range(3):
        cell.answer(cell.planned())
    held = len(cell.core.workers[cell.info.worker_id].running)
    assert held == 4
    # Preferred to the three, but the blocks of their prefix stay with the first one.
    cell.now = 1.0
    cell.submit(5, list(range(200, 240)), sampling=SamplingParams(max_tokens=4))
    for _ in range(4):
        cell.answer(cell.planned())
    assert cell.core.counts.num_preemptions == 0


def test_a_trial_that_is_short_under_a_window_lets_the_older_one_go_on() -> None:
    cell = Cell(
        model=MODEL,
        num_blocks=4,
        max_num_batched_tokens=16,
        steps_in_flight=1,
        groups=CacheGroups((8,)),
    )
    cell.submit(1, list(range(1, 9)), sampling=SamplingParams(max_tokens=40, ignore_eos=True))
    cell.now = 1.0
    cell.submit(2, list(range(20, 60)), sampling=SamplingParams(max_tokens=4, ignore_eos=True))
    has_failed = False
    for _ in range(200):
        if not cell.core.requests:
            break
        plan = cell.planned()
        if len(plan.slots) == 2 and not has_failed:
            has_failed = True
            cell.answer(plan, failure=StepFailure("once"), slots=[], counts=[], token_ids=[])
        else:
            cell.answer(plan)
    assert has_failed
    assert not cell.core.requests


def test_what_waits_at_a_draining_worker_moves_when_its_trial_is_over() -> None:
    cell = Cell(max_num_seqs=2, steps_in_flight=1)
    cell.submit(1, [1, 2, 3])
    cell.submit(2, [4, 5, 6])
    cell.submit(3, [7, 8, 9])
    plan = cell.planned()
    cell.answer(plan, failure=StepFailure("once"), slots=[], counts=[], token_ids=[])
    worker = cell.core.workers[cell.info.worker_id]
    assert worker.fault_isolation
    cell.core.drain_worker(cell.info.worker_id)
    third = cell.core.requests[next(i for i in cell.core.requests if i[0] == 3)].sequences[0]
    for _ in range(40):
        plan = cell.plan()
        if plan is None:
            break
        cell.answer(plan)
    assert third.placement.worker is None
    assert third.state is State.WAITING
    assert cell.core.is_drained(cell.info.worker_id)
