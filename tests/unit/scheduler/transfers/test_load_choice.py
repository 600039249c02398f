"""Load or compute: both ways, by what was measured."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagewire_scheduler.core.costs.link_speed import OVERHEAD_SECONDS, LinkSpeed
from pagewire_scheduler.core.costs.load_cost import (
    MIN_PROBE_SECONDS,
    UNMEASURED_SECONDS,
    LoadDecision,
    LoadReason,
    PrefillSpeed,
    StoreLink,
    choose,
)

BYTES = 16_000  # per block
SIZE = 16  # tokens


def decide(
    prefill: PrefillSpeed, link: StoreLink, num_blocks: int = 100, now: float = 0.0
) -> LoadDecision:
    return choose(
        num_blocks=num_blocks,
        num_tokens=num_blocks * SIZE,
        num_bytes=num_blocks * BYTES,
        prefill=prefill,
        link=link,
        now=now,
    )


def prefill(tokens_per_second: float) -> PrefillSpeed:
    speed = PrefillSpeed()
    speed.note(1000, 1, 1000 / tokens_per_second)
    return speed


def link(bytes_per_second: float) -> StoreLink:
    measured = StoreLink()
    num_bytes = 10**6
    measured.measure(num_bytes, 0, OVERHEAD_SECONDS + num_bytes / bytes_per_second, now=0.0)
    return measured


def test_what_is_not_measured_is_loaded_with_a_fixed_deadline() -> None:
    expected = LoadDecision(LoadReason.UNMEASURED, UNMEASURED_SECONDS)
    assert decide(PrefillSpeed(), StoreLink()) == expected
    assert decide(prefill(1000), StoreLink()) == expected
    assert decide(PrefillSpeed(), link(1e9)) == expected


def test_a_fast_link_is_used_with_half_the_time_of_computing_as_deadline() -> None:
    choice = decide(prefill(1000), link(1e9))
    assert choice.verdict is LoadReason.FASTER
    assert choice.timeout == pytest.approx(0.8)


@pytest.mark.parametrize(("times", "verdict"), [(0.9, LoadReason.SLOWER), (1.1, LoadReason.FASTER)])
def test_the_break_even_is_at_half_the_time_of_computing(times: float, verdict: LoadReason) -> None:
    recompute = 1600 / 1000
    just_enough = 100 * BYTES / (recompute / 2 - OVERHEAD_SECONDS)
    assert decide(prefill(1000), link(just_enough * times)).verdict is verdict


def test_short_runs_are_computed() -> None:
    assert decide(prefill(1000), link(1e9), num_blocks=1).verdict is LoadReason.SHORT
    assert decide(PrefillSpeed(), StoreLink(), num_blocks=1).verdict is LoadReason.SHORT
    # Sooner computed than a load is answered, whatever the link.
    assert decide(prefill(1e6), StoreLink(), num_blocks=2).verdict is LoadReason.SHORT


def test_small_loads_do_not_keep_a_large_one_from_being_tried_once() -> None:
    # 20 ms for 60 kB may be 20 ms for anything.
    way = StoreLink()
    way.measure(60_000, 0, 0.02, now=0.0)
    assert decide(prefill(2000), way, num_blocks=3).verdict is LoadReason.SLOWER
    assert decide(prefill(2000), way, num_blocks=100) == LoadDecision(LoadReason.UNMEASURED, 0.4)
    way.begin(LoadReason.UNMEASURED, 100 * BYTES, 0.0)
    way.num_bytes_under_way = 0
    assert decide(prefill(2000), way, num_blocks=100).verdict is LoadReason.SLOWER
    way.measure(100 * BYTES, 0, 0.04, now=0.0)
    assert decide(prefill(2000), way, num_blocks=100).verdict is LoadReason.FASTER


def test_the_line_tells_what_a_load_costs_from_what_a_byte_costs() -> None:
    speed = LinkSpeed()
    assert speed.seconds(1) is None
    for number in range(20):
        num_bytes = 1000 * (1 + number % 5)
        speed.note(num_bytes, 0.01 + num_bytes * 1e-6)
    assert speed.seconds(0) == pytest.approx(0.01)
    assert speed.seconds(10**6) == pytest.approx(1.01)


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.floats(1e-6, 100)), min_size=1),
    st.integers(0, 10**9),
)
def test_more_bytes_never_take_less_time(samples: list[tuple[int, float]], num: int) -> None:
    speed = LinkSpeed()
    for num_bytes, seconds in samples:
        speed.note(num_bytes, seconds)
    less, more = speed.seconds(num), speed.seconds(num + 1000)
    assert less is not None
    assert more is not None
    assert OVERHEAD_SECONDS <= less <= more


def test_what_is_under_way_is_waited_for_first() -> None:
    way = link(1e7)
    assert decide(prefill(1000), way).verdict is LoadReason.FASTER
    way.begin(LoadReason.FASTER, 10**7, now=0.0)
    assert decide(prefill(1000), way).verdict is LoadReason.SLOWER


def test_a_slow_link_is_probed_ever_more_rarely_one_at_a_time() -> None:
    speed, way = prefill(1000), link(1e5)
    now, probes = 0.0, []
    while now < 500:
        choice = decide(speed, way, now=now)
        if choice.verdict is LoadReason.PROBE:
            assert choice.timeout == pytest.approx(0.8), "a probe costs no more than any load"
            way.begin(choice.verdict, 0, now)
            probes.append(now)
        else:
            assert choice.verdict is LoadReason.SLOWER
        now += 1
    assert probes[0] == MIN_PROBE_SECONDS
    gaps = [after - before for before, after in itertools.pairwise(probes)]
    assert gaps == [30, 60, 120, 240]


def test_a_link_that_has_become_fast_is_found_again() -> None:
    speed, way = prefill(1000), link(1e5)
    assert decide(speed, way).verdict is LoadReason.SLOWER
    for _ in range(20):
        way.measure(10**6, 0, OVERHEAD_SECONDS + 1e-3, now=30.0)
    assert decide(speed, way, now=31.0).verdict is LoadReason.FASTER


def test_a_store_that_fails_is_not_asked() -> None:
    way = link(1e9)
    way.breaker.fail(0.0)
    way.breaker.fail(0.0)
    assert decide(prefill(1000), way, now=0.5).verdict is LoadReason.BROKEN
    assert decide(prefill(1000), way, now=1.0).verdict is LoadReason.FASTER


def test_steps_that_mostly_generate_say_nothing_of_prefill() -> None:
    speed = PrefillSpeed()
    speed.note(64, 64, 0.1)
    speed.note(8, 1, 0.1)
    speed.note(640, 64, 0.0)
    assert speed.seconds(100) is None
    speed.note(200, 64, 0.1)
    assert speed.seconds(100) == pytest.approx(0.05)


def test_an_answer_without_bytes_measures_nothing() -> None:
    way = StoreLink()
    way.measure(0, 0, 2.0, now=0.0)
    way.measure(100, 0, 0.0, now=0.0)
    assert way.seconds(1) is None


def test_an_operator_may_want_every_load_from_a_store_that_works():
    slow, broken = link(1.0), StoreLink()
    sizes = {"num_blocks": 1, "num_tokens": SIZE, "num_bytes": BYTES, "prefill": prefill(1e6)}
    assert not choose(**sizes, link=slow, now=0.0).verdict.is_load
    forced = choose(**sizes, link=slow, now=0.0, is_forced=True)
    assert forced == LoadDecision(LoadReason.FORCED, UNMEASURED_SECONDS)
    assert forced.verdict.is_load
    for _ in range(2):
        broken.breaker.fail(0.0)
    assert choose(**sizes, link=broken, now=0.0, is_forced=True) == LoadDecision(LoadReason.BROKEN)
