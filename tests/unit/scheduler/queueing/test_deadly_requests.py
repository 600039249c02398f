"""Requests that end every worker they run on, and those that are merely unlucky."""

from collections.abc import Callable, Iterable

import pytest
from unit.scheduler.cell import Cell, finished
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import Event, FinishedEvent
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.queueing.losses import MAX_LOSSES, MAX_LOSSES_TOGETHER
from pagewire_shared.sampling.beam import BeamParams
from pagewire_shared.steps.plan import StepPlan

DEADLY = 3


class Ward:
    """A cell whose worker is lost, and replaced, whenever `kills` says so of a plan.

    It is told how far each request is computed by the plan; requests go by their first token.
    """

    def __init__(self, kills: Callable[[dict[int, int]], bool]) -> None:
        self.cell = Cell(steps_in_flight=1)
        self.kills = kills
        self.num_lost = 0
        self.first_tokens: dict[int, int] = {}

    def lose(self) -> list[Event]:
        cell = self.cell
        events = cell.core.detach_worker(cell.info.worker_id)
        check_integrity(cell.core)
        self.num_lost += 1
        cell.info = worker_info(1 + self.num_lost, steps_in_flight=1)
        cell.core.attach_worker(cell.info)
        return events

    def run(self) -> list[FinishedEvent]:
        events: list[Event] = []
        for _ in range(300):
            plan = self.cell.plan()
            if plan is None:
                break
            rows = [(new.slot, new.prompt_token_ids[0]) for new in plan.new_sequences]
            self.first_tokens |= dict(rows)
            for slot, source in zip(plan.fork_slots, plan.fork_sources, strict=True):
                self.first_tokens[slot] = self.first_tokens[source]
            reached = {
                self.first_tokens[slot]: start + num_tokens
                for slot, start, num_tokens in zip(
                    plan.slots, plan.starts, plan.num_new_tokens, strict=True
                )
            }
            if self.kills(reached):
                events += self.lose()
            elif self.cell.core.workers[self.cell.info.worker_id].outstanding:
                events += self.cell.answer(plan, **self.alternatives(plan))
        return finished(events)

    def alternatives(self, plan: StepPlan) -> dict[str, object]:
        """What a beam search needs with its tokens."""
        num_rows = sum(plan.samples)
        if not any(request.is_beam for request in self.cell.core.requests.values()):
            return {}
        return {
            "num_top": [4] * num_rows,
            "top_token_ids": [5, 6, 7, 8] * num_rows,
            "top_logprobs": [-1.0, -1.1, -1.2, -1.3] * num_rows,
        }


def failed(ends: Iterable[FinishedEvent]) -> list[int]:
    return sorted(end.handle for end in ends if end.state is State.FINISHED_FAILED)


@pytest.mark.parametrize("num_neighbours", [0, 1, 4])
def test_it_fails_and_its_neighbours_go_on(num_neighbours: int) -> None:
    ward = Ward(lambda reached: DEADLY in reached)
    for number in (DEADLY, *range(10, 10 + num_neighbours)):
        ward.cell.submit(number, [number] * 5)
    ends = ward.run()
    assert failed(ends) == [DEADLY]
    assert len(ends) == 1 + num_neighbours
    assert ward.num_lost == MAX_LOSSES
    (end,) = (end for end in ends if end.handle == DEADLY)
    assert end.error is not None
    assert "5 workers were lost" in end.error.message
    assert not ward.cell.core.requests


def test_it_may_turn_deadly_late() -> None:
    ward = Ward(lambda reached: reached.get(DEADLY, 0) >= 8)
    for number in (DEADLY, 10, 11):
        ward.cell.submit(number, [number] * 5)
    ends = ward.run()
    assert failed(ends) == [DEADLY]
    assert ward.num_lost == MAX_LOSSES
    assert [end.num_tokens for end in ends if end.handle == DEADLY] == [3]


def test_all_choices_that_wait_for_a_deadly_prompt_fail_with_it() -> None:
    ward = Ward(lambda reached: DEADLY in reached)
    ward.cell.submit(DEADLY, [DEADLY] * 5, emitted=((), (), ()))
    ward.cell.submit(10, [10] * 5)
    ends = ward.run()
    assert failed(ends) == [DEADLY] * 3
    assert ward.num_lost == MAX_LOSSES


def test_a_deadly_search_fails_as_a_whole() -> None:
    ward = Ward(lambda reached: reached.get(DEADLY, 0) > 5)
    ward.cell.submit(DEADLY, [DEADLY] * 5, emitted=((), ()), beam_search=BeamParams())
    ends = ward.run()
    assert failed(ends) == [DEADLY] * 2
    assert [end.num_tokens for end in ends] == [0, 0]
    assert ward.num_lost == MAX_LOSSES


def test_the_unlucky_never_fail() -> None:
    """A worker is lost after every token: each request gets further in between."""
    turns = iter(range(1000))
    ward = Ward(lambda _: next(turns) % 2 == 1)
    for number in (1, 2):
        ward.cell.submit(number, [number] * 5)
    ends = ward.run()
    assert not failed(ends)
    assert len(ends) == 2
    assert ward.num_lost >= MAX_LOSSES


def test_who_was_never_alone_is_not_given_up() -> None:
    ward = Ward(lambda _: ward.num_lost < MAX_LOSSES_TOGETHER)
    for number in (1, 2, 3):
        ward.cell.submit(number, [number] * 5)
    assert not failed(ward.run())


def test_a_suspect_runs_alone_until_it_gets_further() -> None:
    cell = (ward := Ward(lambda _: False)).cell
    for number in (1, 2):
        cell.submit(number, [number] * 5)
    for _ in range(MAX_LOSSES_TOGETHER):
        assert len(cell.planned().slots) == 2
        ward.lose()
    for _ in (1, 2):
        plan = cell.planned()
        assert len(plan.slots) == 1
        cell.answer(plan)
    assert len(cell.planned().slots) == 2


def test_a_newer_epoch_does_not_wash_it_clean() -> None:
    ward = Ward(lambda _: False)
    for epoch in range(MAX_LOSSES):
        assert not ward.cell.submit(1, [1] * 5, epoch=epoch)
        ward.cell.planned()
        ends = finished(ward.lose())
    assert failed(ends) == [1]
