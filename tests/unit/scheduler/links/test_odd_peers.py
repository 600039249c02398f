"""Peers that answer or ask oddly: refused or ignored, and nobody else notices."""

from dataclasses import replace

import pytest
from unit.scheduler.cell import FRONTEND, Cell
from unit.scheduler.hellos import worker_info

from pagewire_scheduler.core.data.events import RejectedEvent
from pagewire_scheduler.core.data.settings import CoreSettings, OverloadLimits
from pagewire_scheduler.core.state.frontend import ENDED, Held
from pagewire_shared.errors import InvalidRequestError, WireError
from pagewire_shared.sampling.beam import BeamParams

PAIR = {"emitted": ((), ()), "is_finished": (False, False), "beam_search": BeamParams()}


def alternatives(*tokens: int) -> dict[str, object]:
    return {"num_top": [len(tokens)], "top_token_ids": list(tokens), "top_logprobs": [-1.0, -2.0]}


def test_a_beam_without_its_alternatives_cuts_the_worker_off() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], **PAIR)
    cell.submit(2, [4, 5, 6], **PAIR)
    fields = {"num_top": [0, 2], "top_token_ids": [1, 2], "top_logprobs": [-1.0, -2.0]}
    with pytest.raises(WireError, match="0 alternatives for a beam that needs 2"):
        cell.answer(cell.planned(), **fields)


def test_alternatives_are_of_the_vocabulary() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], **PAIR)
    with pytest.raises(WireError, match="alternative outside the vocabulary"):
        cell.answer(cell.planned(), **alternatives(10**6, 2))


def test_one_beam_of_a_search_cannot_be_ended_by_a_hello() -> None:
    cell = Cell()
    cell.submit(1, [1, 2, 3], **PAIR)
    (request,) = cell.core.requests.values()
    cell.core.detach_frontend(FRONTEND, 0.0)
    held = Held(request.request_id, 0, 1, (ENDED, 0))
    cell.core.attach_frontend(FRONTEND, [held], is_same_generation=True)
    assert not any(sequence.state.is_finished for sequence in request.sequences)
    cell.core.detach_frontend(FRONTEND, 0.0)
    held = replace(held, next_positions=(ENDED, ENDED))
    cell.core.attach_frontend(FRONTEND, [held], is_same_generation=True)
    assert not cell.core.requests


def test_what_runs_is_not_refused_for_load_when_it_comes_again() -> None:
    cell = Cell(max_num_waiting=1, max_num_seqs=1)
    cell.submit(1, [1, 2, 3])
    cell.answer(cell.planned())
    cell.submit(2, [5, 6])
    assert cell.submit(1, [1, 2, 3], epoch=1, emitted=((9,),)) == []
    assert len(cell.core.requests) == 2


def test_what_is_too_much_alone_is_not_told_to_come_again() -> None:
    limits = OverloadLimits(max_waiting_tokens=10)
    cell = Cell(settings=CoreSettings(generation=3, limits=limits))
    (event,) = cell.submit(1, list(range(1, 30)))
    assert isinstance(event, RejectedEvent)
    assert isinstance(event.error, InvalidRequestError)
    assert event.error.field == "prompt"


def test_a_model_whose_only_worker_drains_takes_nothing_new() -> None:
    cell = Cell()
    assert [num_workers for _, num_workers in cell.core.models()] == [1]
    cell.core.drain_worker(cell.info.worker_id)
    assert [num_workers for _, num_workers in cell.core.models()] == [0]


def test_an_idle_worker_is_told_which_names_are_forgotten() -> None:
    cell = Cell()
    cell.submit(1, list(range(1, 20)))
    while (plan := cell.plan()) is not None:
        cell.answer(plan)
    num_blocks = cell.core.kv_caches.reset(None)
    assert num_blocks > 0
    plan = cell.planned()
    assert len(plan.named_blocks) == num_blocks
    cell.answer(plan)
    assert cell.plan() is None


def test_a_search_needs_one_worker_with_both_its_slots_and_its_blocks() -> None:
    cell = Cell(max_num_seqs=8, num_blocks=8)
    cell.core.attach_worker(worker_info(2, max_num_seqs=2, num_blocks=1000))
    wide = {"emitted": ((),) * 4, "is_finished": (False,) * 4, "beam_search": BeamParams()}
    (event,) = cell.submit(1, list(range(1, 30)), **wide)
    assert isinstance(event, RejectedEvent)
    assert isinstance(event.error, InvalidRequestError)
    assert event.error.field == "n"
