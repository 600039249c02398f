"""Requests of a frontend that is gone, asked for by another one."""

import pytest
from unit.scheduler.cell import FRONTEND, Cell, said, submission

from pagewire_scheduler.core.audit import check_integrity
from pagewire_scheduler.core.data.events import Event, FinishedEvent, RejectedEvent, TokensEvent
from pagewire_shared.errors import PagewireError
from pagewire_shared.sampling.params import SamplingParams

OTHER = b"o" * 16
SAMPLING = SamplingParams(max_tokens=3, seed=7)


def begun(cell: Cell) -> None:
    """Submit a request and compute its first token; another frontend is there, too."""
    cell.submit(1, [1, 2], sampling=SAMPLING)
    cell.answer(cell.planned(), 21)
    cell.core.attach_frontend(OTHER, [], is_same_generation=False)


def asked(cell: Cell, **fields: object) -> list[Event]:
    """Submit the same request from the other frontend."""
    given = {"handle": 5, "sampling": SAMPLING, "must_be_held": True, **fields}
    events = said(cell.core.submit(OTHER, submission(1, [1, 2], **given), cell.now))
    check_integrity(cell.core)
    return events


def refusal(events: list[Event]) -> PagewireError:
    (event,) = events
    assert isinstance(event, RejectedEvent)
    return event.error


def test_it_goes_on_with_the_tokens_that_it_has() -> None:
    cell = Cell()
    begun(cell)
    cell.core.detach_frontend(FRONTEND, now=0.0)
    (tokens,) = asked(cell)
    assert isinstance(tokens, TokensEvent)
    assert (tokens.frontend_id, tokens.handle, tokens.first_position) == (OTHER, 5, 0)
    assert list(tokens.token_ids) == [21]
    events = cell.run()
    check_integrity(cell.core)
    assert {event.frontend_id for event in events} == {OTHER}  # type: ignore[union-attr]
    assert isinstance(events[-1], FinishedEvent)
    # The end of the lease is not its end any more.
    cell.core.tick(10.0)
    assert FRONTEND not in cell.core.frontends
    assert OTHER in cell.core.frontends


def test_an_end_without_a_reader_is_told_to_the_new_one() -> None:
    cell = Cell()
    begun(cell)
    cell.core.detach_frontend(FRONTEND, now=0.0)
    cell.run()
    tokens, end = asked(cell)
    assert isinstance(tokens, TokensEvent)
    assert len(tokens.token_ids) == 3
    assert isinstance(end, FinishedEvent)
    assert not cell.core.requests


def test_it_is_not_taken_from_a_frontend_that_is_there() -> None:
    cell = Cell()
    begun(cell)
    assert refusal(asked(cell)).field == "request_id"
    assert {one.frontend_id for one in cell.core.requests.values()} == {FRONTEND}


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": "other"},
        {"salt": b"other"},
        {"prompt_token_ids": (1, 3)},
        {"sampling": SamplingParams(max_tokens=3, seed=8)},
    ],
)
def test_another_request_of_its_id_does_not_get_its_tokens(fields: dict[str, object]) -> None:
    cell = Cell()
    begun(cell)
    cell.core.detach_frontend(FRONTEND, now=0.0)
    assert refusal(asked(cell, **fields)).field == "request_id"


def test_what_is_not_held_is_refused_where_it_has_to_be() -> None:
    cell = Cell()
    begun(cell)
    cell.core.detach_frontend(FRONTEND, now=0.0)
    cell.core.tick(6.0)
    assert refusal(asked(cell)).field == "must_be_held"
    assert not asked(cell, must_be_held=False)
    assert len(cell.core.requests) == 1
