"""Two lost workers make suspects of all that ran there: they are tried in groups, not one by one;
and who has room looks past the head of a queue."""

from dataclasses import replace

import pytest
from unit.scheduler.cell import Cell
from unit.scheduler.hellos import MODEL, worker_info

from pagewire_scheduler.core.data.events import FinishedEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_shared.sampling.params import SamplingParams
from pagewire_shared.steps.plan import StepPlan

LONG_MODEL = replace(MODEL, max_model_len=200)
CHANGES = {
    "model": LONG_MODEL,
    "num_blocks": 2_000,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2_000,
}


def cell_that_lost_two(num_requests: int) -> Cell:
    cell = Cell(max_num_waiting=1_000, **CHANGES)
    for number in range(1, num_requests + 1):
        sampling = SamplingParams(max_tokens=30, ignore_eos=True)
        cell.submit(number, [number % 39, number // 39, 3], sampling=sampling)
    for _ in range(2):
        assert len(cell.planned().slots) == num_requests
        lose(cell)
    return cell


def lose(cell: Cell) -> list[FinishedEvent]:
    """The worker goes, and comes back as another process."""
    events = cell.core.detach_worker(cell.info.worker_id)
    cell.info = replace(cell.info, incarnation=cell.info.incarnation + 1)
    events += cell.core.attach_worker(cell.info)
    return [event for event in events if isinstance(event, FinishedEvent)]


@pytest.mark.parametrize("num_requests", [2, 30, 256])
def test_innocent_ones_are_cleared_in_few_steps(num_requests: int) -> None:
    cell = cell_that_lost_two(num_requests)
    (worker,) = cell.core.workers.values()
    assert worker.fault_isolation
    num_steps = 0
    while worker.fault_isolation:
        cell.answer(cell.planned())
        num_steps += 1
    assert num_steps <= 9
    assert len(cell.planned().slots) == num_requests


@pytest.mark.parametrize("num_requests", [3, 64, 256])
def test_a_deadly_one_among_them_is_found_and_no_other_fails(num_requests: int) -> None:
    cell = cell_that_lost_two(num_requests)
    num_losses, deadly = 2, num_requests * 2 // 3
    failed: list[FinishedEvent] = []
    for _ in range(200):
        plan = cell.planned()
        if deadly in handles_of(cell, plan):
            failed += lose(cell)
            num_losses += 1
        else:
            cell.answer(plan)
        if failed or not cell.core.requests:
            break
    assert [(event.handle, event.state) for event in failed] == [(deadly, State.FINISHED_FAILED)]
    assert num_losses == 5
    (worker,) = cell.core.workers.values()
    while worker.fault_isolation:
        cell.answer(cell.planned())
    assert len(cell.planned().slots) == num_requests - 1


def handles_of(cell: Cell, plan: StepPlan) -> list[int | None]:
    (worker,) = cell.core.workers.values()
    running = [worker.slots.owners[slot] for slot in plan.slots]
    return [one.request.handle for one in running if one is not None]


def test_who_has_room_takes_what_it_can_and_not_the_head_only() -> None:
    """The head of the other's queue is too large for it, the next one is not."""
    cell = Cell(num_blocks=24, max_num_seqs=1, steps_in_flight=1)
    many = SamplingParams(max_tokens=30, ignore_eos=True)
    cell.submit(1, [1, 2, 3], sampling=many)
    plan = cell.planned()
    cell.submit(2, [4] * 30, sampling=many)
    cell.submit(3, [5, 6, 7], sampling=SamplingParams(max_tokens=3))
    cell.answer(plan)
    cell.planned()
    assert cell.plan() is None
    assert len(cell.core.workers[cell.info.worker_id].waiting) == 2
    small = worker_info(2, num_blocks=4)
    cell.core.attach_worker(small)
    taken = cell.core.plan(small.worker_id)
    assert taken is not None
    assert [new.prompt_token_ids for new in taken.new_sequences] == [(5, 6, 7)]
