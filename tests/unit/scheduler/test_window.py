"""Sliding windows: blocks that no later step reads come free, and nothing else does."""

import pytest
from unit.scheduler.cell import Cell

from pagewire_scheduler.core.block_table import RELEASED
from pagewire_scheduler.core.events import FinishedEvent, RejectedEvent
from pagewire_shared.sampling import SamplingParams

BLOCK_SIZE = 4


def held(cell: Cell) -> int:
    pool = cell.core.workers[cell.info.worker_id].pool
    return pool.num_blocks - pool.num_free


@pytest.mark.parametrize("window", [1, 4, 7, 8, 13])
@pytest.mark.parametrize("steps_in_flight", [1, 2])
def test_a_long_text_holds_the_blocks_of_its_window_only(window: int, steps_in_flight: int) -> None:
    cell = Cell(
        window=window, num_blocks=40, steps_in_flight=steps_in_flight, max_num_batched_tokens=8
    )
    cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=25))
    plans, most = [], 0
    ends: list[FinishedEvent] = []
    for _ in range(200):
        while (plan := cell.plan()) is not None:
            plans.append(plan)
            worker = cell.core.workers[cell.info.worker_id]
            for sequence in worker.running:
                assert sequence.table is not None
                # What this plan reads, counted from the first position it computes.
                first = max(0, plan.starts[0] - window + 1) // BLOCK_SIZE
                assert RELEASED not in sequence.table.blocks[first:]
        if not plans:
            break
        plan = plans.pop(0)
        ends += [event for event in cell.answer(plan) if isinstance(event, FinishedEvent)]
        most = max(most, held(cell))
    assert ends[0].num_tokens == 25
    # Window, and what the steps under way compute.
    assert most <= -(-window // BLOCK_SIZE) + 2 + steps_in_flight * 2
    assert held(cell) == 0


def test_a_text_longer_than_the_pool_runs_when_its_window_fits() -> None:
    cell = Cell(window=8, num_blocks=8, max_num_batched_tokens=8)
    assert not cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=30))
    plans = []
    ends: list[FinishedEvent] = []
    for _ in range(300):
        while (plan := cell.plan()) is not None:
            plans.append(plan)
        if not plans:
            break
        ends += [e for e in cell.answer(plans.pop(0)) if isinstance(e, FinishedEvent)]
    assert [end.num_tokens for end in ends] == [30]


def test_a_window_larger_than_the_pool_is_refused() -> None:
    cell = Cell(window=30, num_blocks=8)
    (event,) = cell.submit(1, [1] * 30, sampling=SamplingParams(max_tokens=30))
    assert isinstance(event, RejectedEvent)


def test_two_long_texts_share_a_small_pool() -> None:
    cell = Cell(window=8, num_blocks=9, max_num_batched_tokens=16)
    for number in (1, 2, 3):
        cell.submit(number, [number] * 30, sampling=SamplingParams(max_tokens=30))
    plans = []
    ends: list[FinishedEvent] = []
    for _ in range(1000):
        while (plan := cell.plan()) is not None:
            plans.append(plan)
        if not plans:
            break
        ends += [e for e in cell.answer(plans.pop(0)) if isinstance(e, FinishedEvent)]
    assert sorted(end.handle for end in ends) == [1, 2, 3]
    assert held(cell) == 0


def test_a_prefix_is_found_from_the_root_only() -> None:
    cell = Cell(window=8, num_blocks=40, steps_in_flight=1, max_num_batched_tokens=64)
    cell.submit(1, [*range(1, 31)], sampling=SamplingParams(max_tokens=1))
    cell.answer(cell.planned())
    cell.submit(2, [*range(1, 31), 7], sampling=SamplingParams(max_tokens=1))
    plan = cell.planned()
    assert plan.starts == [28]
    cell.answer(plan)
    # The first block is used for something else: nothing of the rest is found any more.
    pool = cell.core.workers[cell.info.worker_id].pool
    first = next(block for block, name in enumerate(pool.names) if name is not None)
    pool.unname(first)
    cell.submit(3, [*range(1, 31), 8], sampling=SamplingParams(max_tokens=1))
    assert cell.planned().starts == [0]
