"""Where a prompt is computed, by what was measured."""

import pytest

from pagewire_scheduler.core.costs.handoff_cost import (
    APART,
    AT_HOME,
    MAX_SECONDS,
    MIN_SECONDS,
    UNMEASURED_SECONDS,
    HandoffReason,
    KvRoute,
    PrefillOption,
    choose_handoff,
)

GOOD = KvRoute(seconds=0.01, allows_attempt=True, is_probe_due=False)


def side(num_tokens: int = 1000, **fields: object) -> PrefillOption:
    values = {"num_waiting": 0, "num_streams": 0, "seconds_per_token": 0.001, **fields}
    return PrefillOption(num_tokens=num_tokens, **values)  # type: ignore[arg-type]


def verdict(
    here: PrefillOption, there: PrefillOption, way: KvRoute = GOOD, **fields: object
) -> HandoffReason:
    return choose_handoff(here, there, way, block_size=16, **fields)[0]  # type: ignore[arg-type]


def test_equal_workers_keep_their_prompts() -> None:
    assert verdict(side(), side()) is HandoffReason.DEARER
    assert verdict(side(seconds_per_token=None), side(seconds_per_token=None)) is (
        HandoffReason.DEARER
    )


def test_a_worker_that_only_generates_gives_long_prompts_away() -> None:
    assert verdict(side(weight=APART), side()) is HandoffReason.CHEAPER
    unmeasured = (side(weight=APART, seconds_per_token=None), side(seconds_per_token=None))
    assert verdict(*unmeasured) is HandoffReason.CHEAPER
    assert verdict(side(31, weight=APART), side(31)) is HandoffReason.SHORT


def test_what_is_computed_in_no_time_stays() -> None:
    fast = {"seconds_per_token": 1e-6, "weight": APART}
    assert verdict(side(**fast), side(seconds_per_token=1e-6)) is HandoffReason.SHORT


def test_streams_that_would_wait_count() -> None:
    assert verdict(side(num_streams=8), side()) is HandoffReason.CHEAPER
    assert verdict(side(num_streams=8), side(num_streams=8)) is HandoffReason.DEARER


def test_among_equals_nothing_is_moved_for_a_little() -> None:
    assert verdict(side(weight=AT_HOME), side(seconds_per_token=0.0006)) is HandoffReason.DEARER
    assert verdict(side(weight=AT_HOME), side(seconds_per_token=0.0004)) is HandoffReason.CHEAPER
    assert verdict(side(weight=AT_HOME), side(0)) is HandoffReason.CHEAPER


def test_a_queue_at_the_source_counts() -> None:
    busy = side(num_waiting=5000)
    assert verdict(side(weight=APART), busy) is HandoffReason.DEARER
    assert verdict(side(weight=APART, num_waiting=5000), busy) is HandoffReason.CHEAPER


def test_cached_prefixes_count_on_both_sides() -> None:
    assert verdict(side(100, weight=APART), side(1000)) is HandoffReason.DEARER
    assert verdict(side(1000), side(0)) is HandoffReason.CHEAPER


def test_a_slow_way_is_tried_again_now_and_then() -> None:
    slow = KvRoute(seconds=0.6, allows_attempt=True, is_probe_due=False)
    due = KvRoute(seconds=0.6, allows_attempt=True, is_probe_due=True)
    assert verdict(side(weight=APART), side(), slow) is HandoffReason.SLOW
    assert verdict(side(weight=APART), side(), due) is HandoffReason.PROBE


def test_a_pair_that_fails_is_left_alone() -> None:
    broken = KvRoute(seconds=None, allows_attempt=False, is_probe_due=True)
    assert verdict(side(weight=APART), side(), broken) is HandoffReason.BROKEN
    assert verdict(side(), side(), broken, is_forced=True) is HandoffReason.BROKEN


def test_an_operator_may_hand_everything_off() -> None:
    assert verdict(side(16), side(num_waiting=9999), is_forced=True) is HandoffReason.FORCED
    assert verdict(side(15), side(), is_forced=True) is HandoffReason.SHORT


@pytest.mark.parametrize(
    ("there", "seconds"),
    [
        (side(1000), MIN_SECONDS + 2 * 1.01),
        (side(1000, num_waiting=1000), MIN_SECONDS + 2 * 2.01),
        (side(10**6), MAX_SECONDS),
    ],
)
def test_the_deadline_follows_the_estimate(there: PrefillOption, seconds: float) -> None:
    assert choose_handoff(side(), there, GOOD, block_size=16)[1] == pytest.approx(seconds)


def test_the_deadline_without_a_measurement() -> None:
    unknown = side(seconds_per_token=None)
    assert choose_handoff(unknown, unknown, GOOD, block_size=16)[1] == UNMEASURED_SECONDS
