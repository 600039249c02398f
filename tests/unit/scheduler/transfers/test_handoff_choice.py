"""Where a prompt is computed, by what was measured."""

import pytest

from pagewire_scheduler.core.costs.handoff_cost import (
    APART,
    AT_HOME,
    MAX_SECONDS,
    MIN_SECONDS,
    UNMEASURED_SECONDS,
    HandoffVerdict,
    Side,
    Way,
    choose_handoff,
)

GOOD = Way(seconds=0.01, is_letting=True, is_probe_due=False)


def side(num_tokens: int = 1000, **fields: object) -> Side:
    values = {"num_waiting": 0, "num_streams": 0, "seconds_per_token": 0.001, **fields}
    return Side(num_tokens=num_tokens, **values)  # type: ignore[arg-type]


def verdict(here: Side, there: Side, way: Way = GOOD, **fields: object) -> HandoffVerdict:
    return choose_handoff(here, there, way, block_size=16, **fields)[0]  # type: ignore[arg-type]


def test_equal_workers_keep_their_prompts() -> None:
    assert verdict(side(), side()) is HandoffVerdict.DEARER
    assert verdict(side(seconds_per_token=None), side(seconds_per_token=None)) is (
        HandoffVerdict.DEARER
    )


def test_a_worker_that_only_generates_gives_long_prompts_away() -> None:
    assert verdict(side(weight=APART), side()) is HandoffVerdict.CHEAPER
    unmeasured = (side(weight=APART, seconds_per_token=None), side(seconds_per_token=None))
    assert verdict(*unmeasured) is HandoffVerdict.CHEAPER
    assert verdict(side(31, weight=APART), side(31)) is HandoffVerdict.SHORT


def test_what_is_computed_in_no_time_stays() -> None:
    fast = {"seconds_per_token": 1e-6, "weight": APART}
    assert verdict(side(**fast), side(seconds_per_token=1e-6)) is HandoffVerdict.SHORT


def test_streams_that_would_wait_count() -> None:
    assert verdict(side(num_streams=8), side()) is HandoffVerdict.CHEAPER
    assert verdict(side(num_streams=8), side(num_streams=8)) is HandoffVerdict.DEARER


def test_among_equals_nothing_is_moved_for_a_little() -> None:
    assert verdict(side(weight=AT_HOME), side(seconds_per_token=0.0006)) is HandoffVerdict.DEARER
    assert verdict(side(weight=AT_HOME), side(seconds_per_token=0.0004)) is HandoffVerdict.CHEAPER
    assert verdict(side(weight=AT_HOME), side(0)) is HandoffVerdict.CHEAPER


def test_a_queue_at_the_source_counts() -> None:
    busy = side(num_waiting=5000)
    assert verdict(side(weight=APART), busy) is HandoffVerdict.DEARER
    assert verdict(side(weight=APART, num_waiting=5000), busy) is HandoffVerdict.CHEAPER


def test_cached_prefixes_count_on_both_sides() -> None:
    assert verdict(side(100, weight=APART), side(1000)) is HandoffVerdict.DEARER
    assert verdict(side(1000), side(0)) is HandoffVerdict.CHEAPER


def test_a_slow_way_is_tried_again_now_and_then() -> None:
    slow = Way(seconds=0.6, is_letting=True, is_probe_due=False)
    due = Way(seconds=0.6, is_letting=True, is_probe_due=True)
    assert verdict(side(weight=APART), side(), slow) is HandoffVerdict.SLOW
    assert verdict(side(weight=APART), side(), due) is HandoffVerdict.PROBE


def test_a_pair_that_fails_is_left_alone() -> None:
    broken = Way(seconds=None, is_letting=False, is_probe_due=True)
    assert verdict(side(weight=APART), side(), broken) is HandoffVerdict.BROKEN
    assert verdict(side(), side(), broken, is_forced=True) is HandoffVerdict.BROKEN


def test_an_operator_may_hand_everything_off() -> None:
    assert verdict(side(16), side(num_waiting=9999), is_forced=True) is HandoffVerdict.FORCED
    assert verdict(side(15), side(), is_forced=True) is HandoffVerdict.SHORT


@pytest.mark.parametrize(
    ("there", "seconds"),
    [
        (side(1000), MIN_SECONDS + 2 * 1.01),
        (side(1000, num_waiting=1000), MIN_SECONDS + 2 * 2.01),
        (side(10**6), MAX_SECONDS),
    ],
)
def test_the_deadline_follows_the_estimate(there: Side, seconds: float) -> None:
    assert choose_handoff(side(), there, GOOD, block_size=16)[1] == pytest.approx(seconds)


def test_the_deadline_without_a_measurement() -> None:
    unknown = side(seconds_per_token=None)
    assert choose_handoff(unknown, unknown, GOOD, block_size=16)[1] == UNMEASURED_SECONDS
