"""Which block event may come next, and what is asked for after a loss."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire_scheduler.peers.watch_position import WatchedChange, WatchPosition
from pagewire_shared.errors import WireError

STORED, REMOVED, CLEARED = WatchedChange.STORED, WatchedChange.REMOVED, WatchedChange.CLEARED
STORE = b"a" * 16


def position(*heard: tuple[int, WatchedChange]) -> WatchPosition:
    got = WatchPosition()
    assert got.open(STORE) is None
    for sequence, change in heard:
        got.advance(sequence, change)
    return got


@pytest.mark.parametrize(
    "heard",
    [
        [(7, STORED), (7, STORED), (8, REMOVED), (9, STORED), (10, CLEARED), (11, STORED)],
        [(0, STORED), (1, STORED)],
        [(3, REMOVED), (4, STORED)],
        [(5, STORED), (9, CLEARED), (9, STORED), (9, STORED), (10, STORED)],
    ],
)
def test_listings_and_events_are_taken(heard: list[tuple[int, WatchedChange]]) -> None:
    assert position(*heard).open(STORE) == heard[-1][0] + 1


@pytest.mark.parametrize(
    "heard",
    [
        [(7, STORED), (9, STORED)],
        [(7, STORED), (6, STORED)],
        [(7, STORED), (7, REMOVED)],
        [(7, STORED), (8, STORED), (8, STORED)],
        [(7, STORED), (8, REMOVED), (8, REMOVED)],
        [(7, STORED), (8, STORED), (7, CLEARED)],
    ],
)
def test_a_gap_and_a_step_back_are_refused(heard: list[tuple[int, WatchedChange]]) -> None:
    got = position(*heard[:-1])
    with pytest.raises(WireError, match=f"block event {heard[-1][0]} came after"):
        got.advance(*heard[-1])


def test_a_watch_is_resumed_after_the_last_event() -> None:
    got = position((7, STORED), (8, STORED))
    assert got.open(STORE) == 9
    got.advance(9, REMOVED)
    assert got.open(STORE) == 10


def test_a_listing_that_may_be_torn_is_not_resumed() -> None:
    assert position((7, STORED), (7, STORED)).open(STORE) is None


def test_another_store_is_listed_anew_and_counts_from_anywhere() -> None:
    got = position((7, STORED), (8, STORED))
    assert got.open(b"b" * 16) is None
    got.advance(1, STORED)
    got.advance(2, REMOVED)
    assert got.open(b"b" * 16) == 3


def test_a_store_that_forgot_may_begin_its_answer_anywhere() -> None:
    got = position((7, STORED), (8, STORED))
    assert got.open(STORE) == 9
    got.advance(1, CLEARED)
    got.advance(1, STORED)
    got.advance(2, STORED)
    assert got.open(STORE) == 3


@given(st.lists(st.tuples(st.integers(0, 6), st.sampled_from(WatchedChange)), max_size=12))
def test_whatever_is_taken_never_goes_back(heard: list[tuple[int, WatchedChange]]) -> None:
    got, last = position(), None
    for sequence, change in heard:
        try:
            got.advance(sequence, change)
        except WireError:
            assert last is not None
            assert sequence != last + 1
        else:
            assert last is None or last <= sequence <= last + 1 or change is CLEARED
            last = sequence
