"""What a scheduler believes of generations that peers have seen."""

from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

import pytest

from pagewire_scheduler.links import generation as module
from pagewire_scheduler.links.generation import MAX_AHEAD_MS, Generation
from pagewire_shared.errors import PeerRefusedError, UnavailableError

START = 1_800_000_000_000


@dataclass
class Clock:
    now_ms: int = START

    def time_ns(self) -> int:
        return self.now_ms * 1_000_000


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    with mock.patch.object(module, "time", clock):
        yield clock


def test_it_takes_the_next_one_until_somebody_was_welcomed(clock: Clock) -> None:
    generation = Generation("blue")
    clock.now_ms += 20_000
    generation.observe("blue", START + 10_000)
    assert generation.number == START + 10_001
    assert generation.issue() == START + 10_001
    generation.observe("blue", START + 10_001)
    with pytest.raises(UnavailableError, match="started later"):
        generation.observe("blue", START + 10_002)
    assert generation.number == START + 10_001


def test_what_nobody_can_have_issued_by_now_is_a_clock_set_back(clock: Clock) -> None:
    generation = Generation("blue")
    generation.issue()
    generation.observe("", START + 1)
    assert generation.number == START + 2
    generation.observe("blue", START + MAX_AHEAD_MS)
    assert generation.number == START + MAX_AHEAD_MS + 1


def test_a_claim_cannot_lock_the_next_scheduler_out(clock: Clock) -> None:
    """The highest number that peers can be made to remember is believed after a restart."""
    generation = Generation("blue")
    generation.observe("blue", START + MAX_AHEAD_MS)
    remembered = generation.issue()
    clock.now_ms += 1
    successor = Generation("blue")
    successor.issue()
    successor.observe("blue", remembered)
    assert successor.number == remembered + 1


@pytest.mark.parametrize("cell", ["", "blue"])
def test_more_than_a_day_ahead_is_refused(clock: Clock, cell: str) -> None:
    generation = Generation("blue")
    with pytest.raises(PeerRefusedError, match="a day ahead") as caught:
        generation.observe(cell, START + MAX_AHEAD_MS + 1)
    assert caught.value.field == "highest_generation"
    assert generation.number == START


def test_other_cells_count_apart(clock: Clock) -> None:
    generation = Generation("blue")
    generation.observe("green", START + 2 * MAX_AHEAD_MS)
    assert generation.number == START
    with pytest.raises(PeerRefusedError, match="above"):
        generation.observe("green", 2**63)


def test_what_is_held_is_of_one_cell(clock: Clock) -> None:
    generation = Generation("blue")
    assert generation.is_held("blue", START)
    assert generation.is_held("", START), "a frontend that knows of no cells"
    assert not generation.is_held("green", START)
    assert not generation.is_held("blue", START + 1)
    assert not generation.is_held("blue", None)


def test_the_same_fault_is_logged_once_a_minute(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    generation = Generation("blue")
    generation.issue()
    for seconds in (1, 2, 30, 59, 62, 63):
        clock.now_ms = START + 1000 * seconds
        with pytest.raises(UnavailableError):
            generation.observe("blue", START + 1)
    assert len(caplog.records) == 2
