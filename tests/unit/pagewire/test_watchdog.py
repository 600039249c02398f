"""Which child is given up: no process, no clock."""

from collections.abc import Callable

import pytest

from pagewire.local.process_activity import Activity
from pagewire.local.watchdog import (
    BUSY_PATIENCE_SECONDS,
    FRONTEND_PATIENCE_SECONDS,
    IDLE_PATIENCE_SECONDS,
    START_PATIENCE_SECONDS,
    TICK_SECONDS,
    Ask,
    Hung,
    Watchdog,
)

ROLES = ("scheduler", "kvstore", "worker", "frontend")


def watching(role: str = "scheduler", *, is_ready: bool = True) -> Watchdog:
    """One child, which was asked."""
    watchdog = Watchdog(0.0)
    watchdog.started("a", role, 0.0)
    if is_ready:
        watchdog.ready("a")
    assert watchdog.on_time(TICK_SECONDS, never) == [Ask("a")]
    return watchdog


def never(name: str) -> Activity:
    raise AssertionError("it has answered")


def silence(
    watchdog: Watchdog, look: Callable[[str], Activity], seconds: float, begin: float = TICK_SECONDS
) -> tuple[float, list[Ask | Hung]]:
    """Let time pass on time; return when something was to do, and what."""
    now = begin
    while now < begin + seconds:
        now += TICK_SECONDS
        if actions := watchdog.on_time(now, look):
            return now - begin, actions
    return now - begin, []


@pytest.mark.parametrize("role", ROLES)
def test_one_that_does_nothing_is_given_up(role: str) -> None:
    patience = FRONTEND_PATIENCE_SECONDS if role == "frontend" else IDLE_PATIENCE_SECONDS
    after, [hung] = silence(watching(role), lambda _: Activity.IDLE, 100.0)
    assert after == patience
    assert isinstance(hung, Hung)
    assert "no answer" in hung.reason


def test_one_that_answers_is_asked_again_and_again() -> None:
    watchdog = watching()
    now = TICK_SECONDS
    for _ in range(100):
        assert watchdog.answered("a", is_alive=True) == []
        now += TICK_SECONDS
        assert watchdog.on_time(now, never) == [Ask("a")]


def test_one_that_was_slow_begins_anew() -> None:
    watchdog, now = watching(), TICK_SECONDS
    for _ in range(5):
        passed, actions = silence(
            watchdog, lambda _: Activity.IDLE, IDLE_PATIENCE_SECONDS - TICK_SECONDS, now
        )
        assert actions == []
        watchdog.answered("a", is_alive=True)
        now += passed + TICK_SECONDS
        assert watchdog.on_time(now, never) == [Ask("a")]


def test_a_starved_machine_kills_nobody() -> None:
    """It waits for a core or a disk for ever."""
    assert silence(watching(), lambda _: Activity.HELD, 1000.0)[1] == []


def test_one_that_sleeps_between_its_turns_is_not_idle() -> None:
    looks = iter([Activity.IDLE, Activity.IDLE, Activity.IDLE, Activity.HELD] * 1000)
    assert silence(watching(), lambda _: next(looks), 900.0)[1] == []


def test_time_in_which_this_side_did_not_run_does_not_count() -> None:
    """The machine slept, or this process was stopped."""
    watchdog = watching()
    now = TICK_SECONDS
    for _ in range(50):
        now += 30.0
        assert watchdog.on_time(now, lambda _: Activity.IDLE) == []


def test_one_that_is_stopped_is_given_up_on_a_starved_machine_too() -> None:
    """This side is late each time; one look is not enough, as both may have been stopped."""
    watchdog, now, num_looks = watching(), TICK_SECONDS, 0
    actions: list[Ask | Hung] = []
    while not actions:
        now += 30.0
        num_looks += 1
        actions = watchdog.on_time(now, lambda _: Activity.STOPPED)
    assert isinstance(actions[0], Hung)
    assert 2 <= num_looks <= 8


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("activity", [Activity.BUSY, Activity.UNKNOWN])
def test_one_that_computes_has_more_time(role: str, activity: Activity) -> None:
    after, [hung] = silence(watching(role), lambda _: activity, 1000.0)
    assert isinstance(hung, Hung)
    assert after == BUSY_PATIENCE_SECONDS[role] > IDLE_PATIENCE_SECONDS


def test_one_that_starts_may_compute_for_as_long_as_it_takes() -> None:
    watchdog = watching("worker", is_ready=False)
    assert silence(watchdog, lambda _: Activity.BUSY, 5000.0)[1] == []


def test_one_that_starts_and_does_nothing_is_given_up_late() -> None:
    watchdog = watching("worker", is_ready=False)
    after, [hung] = silence(watchdog, lambda _: Activity.IDLE, 1000.0)
    assert isinstance(hung, Hung)
    assert after == START_PATIENCE_SECONDS


def test_one_that_says_it_makes_no_progress_is_given_up_at_once() -> None:
    [hung] = watching("worker").answered("a", is_alive=False)
    assert "no progress" in hung.reason


def test_it_is_given_up_once_and_watched_again_when_it_is_back() -> None:
    watchdog = watching()
    assert silence(watchdog, lambda _: Activity.IDLE, 3.0)[1]
    assert watchdog.next_tick is None
    watchdog.started("a", "scheduler", 50.0)
    assert watchdog.next_tick == 50.0 + TICK_SECONDS
    assert watchdog.on_time(50.0 + TICK_SECONDS, never) == [Ask("a")]


def test_one_that_is_to_end_is_not_watched() -> None:
    watchdog = watching()
    watchdog.ended("a")
    assert watchdog.answered("a", is_alive=False) == []
    assert silence(watchdog, never, 10.0)[1] == []


def test_it_can_be_off() -> None:
    watchdog = Watchdog(0.0, is_on=False)
    watchdog.started("a", "scheduler", 0.0)
    assert watchdog.next_tick is None
    assert silence(watchdog, never, 10.0)[1] == []
