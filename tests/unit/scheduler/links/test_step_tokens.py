"""How many tokens a step takes: fewer where sequences share it than where one runs alone."""

import pytest
from unit.scheduler.cell import Cell
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.peers.peers import check_worker
from pagewire_shared.errors import PeerRefusedError


def run(cell: Cell, num_steps: int) -> list[list[int]]:
    """Return the tokens of so many steps, each answered before the next is planned."""
    steps = []
    for _ in range(num_steps):
        plan = cell.planned()
        steps.append(plan.num_new_tokens)
        cell.answer(plan)
    return steps


def test_a_prompt_that_runs_alone_takes_what_fits_a_step() -> None:
    cell = Cell(max_num_batched_tokens=20, shared_step_tokens=6)
    cell.submit(1, [1] * 50)
    assert run(cell, 5) == [[6], [20], [20], [4], [1]]


def test_beside_a_stream_its_steps_are_short() -> None:
    cell = Cell(max_num_batched_tokens=20, shared_step_tokens=6)
    cell.submit(1, [1, 2])
    assert run(cell, 1) == [[2]]
    cell.submit(2, [1] * 12)
    assert run(cell, 4) == [[1, 5], [1, 5], [1, 2], [1, 1]]


def test_who_comes_later_shares_the_step_in_which_it_starts() -> None:
    cell = Cell(max_num_batched_tokens=20, shared_step_tokens=6)
    cell.submit(1, [1] * 30)
    assert run(cell, 1) == [[6]]
    cell.submit(2, [2] * 10)
    # What is left of the first fills a step of its own, and then one that both share.
    assert run(cell, 4) == [[20], [4, 2], [1, 5], [1, 3]]


def test_without_a_limit_of_their_own_shared_steps_are_like_others() -> None:
    cell = Cell(max_num_batched_tokens=20)
    cell.submit(1, [1] * 30)
    cell.submit(2, [2] * 10)
    assert run(cell, 2) == [[20], [10, 10]]


def test_no_more_sequences_run_than_a_shared_step_has_tokens() -> None:
    cell = Cell(max_num_batched_tokens=20, shared_step_tokens=2, max_num_seqs=6)
    for number in range(1, 4):
        cell.submit(number, [number])
    assert run(cell, 2) == [[1, 1], [1, 1]]


def test_a_shared_step_is_no_longer_than_any_other() -> None:
    check_worker(worker_info(1, max_num_batched_tokens=20, shared_step_tokens=20), [], [])
    with pytest.raises(PeerRefusedError, match="must not exceed") as refusal:
        check_worker(worker_info(1, max_num_batched_tokens=20, shared_step_tokens=21), [], [])
    assert refusal.value.field == "shared_step_tokens"
