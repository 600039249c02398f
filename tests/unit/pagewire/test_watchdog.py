"""Which child is given up: no process, no clock."""

import itertools
from collections.abc import Callable

import pytest

from pagewire.local.process_activity import Activity
from pagewire.local.watchdog import (
    BUSY_PATIENCE_SECONDS,
    FRONTEND_PATIENCE_SECONDS,
    IDLE_PATIENCE_SECONDS,
    MAX_STANDBY_PAUSE_SECONDS,
    STANDBY_PAUSE_SECONDS,
    STANDBY_SHARE,
    START_PATIENCE_SECONDS,
    TICK_SECONDS,
    Ask,
    Dismiss,
    Hung,
    Prepare,
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
) -> tuple[float, list[Ask | Prepare | Hung]]:
    """Let time pass on time; return when something was to do but to prepare, and what."""
    now = begin
    while now < begin + seconds:
        now += TICK_SECONDS
        actions = watchdog.on_time(now, look)
        if any(not isinstance(action, Prepare) for action in actions):
            return now - begin, actions
    return now - begin, []


def preparations(
    watchdog: Watchdog,
    look: Callable[[str], Activity],
    seconds: float,
    begin: float = TICK_SECONDS,
    tick: float = TICK_SECONDS,
) -> list[float]:
    """Let time pass; return when replacements were to be started, since `begin`."""
    now, prepared = begin, []
    while now < begin + seconds:
        now += tick
        if Prepare("a") in watchdog.on_time(now, look):
            prepared.append(now - begin)
    return prepared


@pytest.mark.parametrize("role", ROLES)
def test_an_idle_child_is_given_up(role: str) -> None:
    patience = FRONTEND_PATIENCE_SECONDS if role == "frontend" else IDLE_PATIENCE_SECONDS
    after, [hung] = silence(watching(role), lambda _: Activity.IDLE, 100.0)
    assert after == patience
    assert isinstance(hung, Hung)
    assert "no answer" in hung.reason


def test_a_child_that_answers_is_probed_at_every_tick() -> None:
    watchdog = watching()
    now = TICK_SECONDS
    for _ in range(100):
        assert watchdog.answered("a", is_alive=True) == []
        now += TICK_SECONDS
        assert watchdog.on_time(now, never) == [Ask("a")]


def test_an_answer_resets_the_counted_time() -> None:
    watchdog, now = watching(), TICK_SECONDS
    for _ in range(5):
        passed, actions = silence(
            watchdog, lambda _: Activity.IDLE, IDLE_PATIENCE_SECONDS - TICK_SECONDS, now
        )
        assert actions == []
        assert Hung not in map(type, watchdog.answered("a", is_alive=True))
        now += passed + TICK_SECONDS
        assert watchdog.on_time(now, never) == [Ask("a")]


def test_a_starved_machine_kills_no_child() -> None:
    """It waits for a core or a disk for ever."""
    assert silence(watching(), lambda _: Activity.HELD, 1000.0)[1] == []


def test_a_child_held_between_looks_is_not_idle() -> None:
    looks = iter([Activity.IDLE, Activity.IDLE, Activity.IDLE, Activity.HELD] * 1000)
    assert silence(watching(), lambda _: next(looks), 900.0)[1] == []


def test_time_while_the_watchdog_was_late_does_not_count() -> None:
    """The machine slept, or this process was stopped."""
    watchdog = watching()
    now = TICK_SECONDS
    for _ in range(50):
        now += 30.0
        assert watchdog.on_time(now, lambda _: Activity.IDLE) == []


def test_a_stopped_child_is_given_up_on_a_starved_machine_too() -> None:
    """This side is late each time; one look is not enough, as both may have been stopped."""
    watchdog, now, num_looks = watching(), TICK_SECONDS, 0
    actions: list[Ask | Prepare | Hung] = []
    while not actions:
        now += 30.0
        num_looks += 1
        actions = watchdog.on_time(now, lambda _: Activity.STOPPED)
    assert isinstance(actions[0], Hung)
    assert 2 <= num_looks <= 8


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("activity", [Activity.BUSY, Activity.UNKNOWN])
def test_a_child_that_computes_has_more_time(role: str, activity: Activity) -> None:
    after, [hung] = silence(watching(role), lambda _: activity, 1000.0)
    assert isinstance(hung, Hung)
    assert after == BUSY_PATIENCE_SECONDS[role] > IDLE_PATIENCE_SECONDS


def test_a_starting_child_may_compute_without_bound() -> None:
    watchdog = watching("worker", is_ready=False)
    assert silence(watchdog, lambda _: Activity.BUSY, 5000.0)[1] == []


def test_an_idle_starting_child_is_given_up_late() -> None:
    watchdog = watching("worker", is_ready=False)
    after, [hung] = silence(watchdog, lambda _: Activity.IDLE, 1000.0)
    assert isinstance(hung, Hung)
    assert after == START_PATIENCE_SECONDS


def test_a_child_that_reports_no_progress_is_given_up_at_once() -> None:
    [hung] = watching("worker").answered("a", is_alive=False)
    assert isinstance(hung, Hung)
    assert "no progress" in hung.reason


def test_a_child_is_given_up_once_and_watched_again_after_its_restart() -> None:
    watchdog = watching()
    assert silence(watchdog, lambda _: Activity.IDLE, 3.0)[1]
    assert watchdog.next_tick is None
    watchdog.started("a", "scheduler", 50.0)
    assert watchdog.next_tick == 50.0 + TICK_SECONDS
    assert watchdog.on_time(50.0 + TICK_SECONDS, never) == [Ask("a")]


def test_an_ended_child_is_not_watched() -> None:
    watchdog = watching()
    watchdog.ended("a")
    assert watchdog.answered("a", is_alive=False) == []
    assert silence(watchdog, never, 10.0)[1] == []


def test_a_watchdog_that_is_off_watches_no_child() -> None:
    watchdog = Watchdog(0.0, is_on=False)
    watchdog.started("a", "scheduler", 0.0)
    assert watchdog.next_tick is None
    assert silence(watchdog, never, 10.0)[1] == []


@pytest.mark.parametrize("role", ROLES)
def test_a_standby_is_started_before_an_idle_child_is_given_up(role: str) -> None:
    patience = FRONTEND_PATIENCE_SECONDS if role == "frontend" else IDLE_PATIENCE_SECONDS
    assert preparations(watching(role), lambda _: Activity.IDLE, 2 * patience) == [
        STANDBY_SHARE * patience
    ]


@pytest.mark.parametrize("activity", [Activity.HELD, Activity.BUSY, Activity.UNKNOWN])
def test_no_standby_for_a_child_that_computes_or_waits_for_a_core(activity: Activity) -> None:
    assert preparations(watching("worker"), lambda _: activity, 200.0) == []


def test_no_standby_while_the_watchdog_is_late() -> None:
    """A stopped one counts even so; whether to start a process is seen at the next look."""
    for activity in (Activity.IDLE, Activity.STOPPED):
        assert preparations(watching(), lambda _, a=activity: a, 120.0, tick=30.0) == []


def test_no_standby_for_a_starting_child() -> None:
    watchdog = watching("worker", is_ready=False)
    assert preparations(watchdog, lambda _: Activity.IDLE, START_PATIENCE_SECONDS) == []


def test_a_standby_is_dismissed_when_the_child_answers() -> None:
    watchdog = watching()
    assert preparations(watchdog, lambda _: Activity.IDLE, 1.0) == [1.0]
    assert watchdog.answered("a", is_alive=True) == [Dismiss("a")]
    assert watchdog.answered("a", is_alive=True) == []


def test_pauses_between_unneeded_standbys_grow() -> None:
    """It answers after each second of silence."""
    watchdog, now, prepared = watching(), TICK_SECONDS, []
    while now < 4 * MAX_STANDBY_PAUSE_SECONDS:
        prepared += [now + at for at in preparations(watchdog, lambda _: Activity.IDLE, 1.0, now)]
        watchdog.answered("a", is_alive=True)
        now += 1.25
        assert Ask("a") in watchdog.on_time(now, never)
    pauses = [after - before for before, after in itertools.pairwise(prepared)]
    assert pauses == sorted(pauses)
    assert STANDBY_PAUSE_SECONDS <= pauses[0] < 2 * STANDBY_PAUSE_SECONDS
    assert MAX_STANDBY_PAUSE_SECONDS <= pauses[-1] < MAX_STANDBY_PAUSE_SECONDS + 10.0
