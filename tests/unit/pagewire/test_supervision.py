"""The supervision of child processes as a state machine: no process, no clock."""

import random

import pytest

from pagewire.local.supervision import (
    LEGAL_MOVES,
    MAX_START_ATTEMPTS,
    STABLE_SECONDS,
    STOP_GRACE_SECONDS,
    BecameReady,
    Child,
    ChildState,
    Ended,
    Restarting,
    Signal,
    Start,
    Supervision,
    supervise,
)


class Doubling:
    def __init__(self) -> None:
        self.delay = 0.5

    def next_seconds(self) -> float:
        self.delay *= 2
        return self.delay

    def reset(self) -> None:
        self.delay = 0.5


def two() -> Supervision:
    return supervise([("a", (), 0), ("b", (), 0)], Doubling)


def ready() -> Supervision:
    supervision = two()
    supervision.start(0.0)
    supervision.on_ready("a", 1.0)
    assert supervision.on_ready("b", 1.0) == [BecameReady()]
    return supervision


def test_the_deployment_is_ready_when_all_children_are() -> None:
    supervision = two()
    assert supervision.start(0.0) == [Start("a"), Start("b")]
    assert supervision.on_ready("b", 1.0) == []
    assert supervision.on_ready("a", 1.0) == [BecameReady()]
    assert supervision.on_ready("a", 1.5) == []


def test_a_child_that_starts_after_others_waits_for_them() -> None:
    supervision = supervise([("late", ("a", "b"), 0), ("a", (), 0), ("b", (), 0)], Doubling)
    assert supervision.start(0.0) == [Start("a"), Start("b")]
    assert supervision.on_ready("a", 1.0) == []
    assert supervision.on_ready("b", 1.0) == [Start("late")]
    assert supervision.on_ready("late", 2.0) == [BecameReady()]


def test_children_restart_with_growing_delays() -> None:
    supervision = ready()
    assert supervision.on_exit("a", "killed by SIGKILL", -9, 10.0) == [
        Restarting("a", "killed by SIGKILL", 1.0)
    ]
    assert supervision.next_due() == 11.0
    assert supervision.on_time(10.9) == []
    assert supervision.on_time(11.0) == [Start("a")]
    assert supervision.on_exit("a", "exit status 1", 1, 12.0) == [
        Restarting("a", "exit status 1", 2.0)
    ]
    assert supervision.on_time(14.0) == [Start("a")]
    assert supervision.on_ready("a", 15.0) == []


def test_a_stable_child_restarts_at_once_and_its_backoff_starts_anew() -> None:
    supervision = ready()
    supervision.children["a"].backoff.next_seconds()
    stable = 1.0 + STABLE_SECONDS
    assert supervision.on_exit("a", "x", 1, stable) == [Restarting("a", "x", 0.0)]
    assert supervision.on_time(stable) == [Start("a")]
    supervision.on_ready("a", stable + 1.0)
    assert supervision.on_exit("a", "x", 1, stable + 2.0) == [Restarting("a", "x", 2.0)]


def test_a_child_with_a_standby_restarts_at_once() -> None:
    supervision = ready()
    again = supervision.on_exit("a", "killed by SIGKILL", -9, 10.0, has_standby=True)
    assert again == [Restarting("a", "killed by SIGKILL", 0.0)]
    assert supervision.on_time(10.0) == [Start("a")]
    # The next delay grows all the same.
    assert supervision.on_exit("a", "x", 1, 12.0) == [Restarting("a", "x", 2.0)]


def test_a_stated_failure_before_ready_ends_everything() -> None:
    supervision = two()
    supervision.start(0.0)
    supervision.on_ready("a", 0.5)
    supervision.on_failed("b", "the port is taken")
    assert supervision.on_exit("b", "exit status 1", 1, 1.0) == [Signal("a", is_kill=False)]
    assert supervision.on_exit("a", "exit status 0", 0, 1.5) == [Ended("b: the port is taken")]


@pytest.mark.parametrize("status", [0, 1, 2])
def test_an_exit_before_ready_ends_everything_at_once(status: int) -> None:
    supervision = supervise([("a", (), 0)], Doubling)
    supervision.start(0.0)
    assert supervision.on_exit("a", "exit status", status, 1.0) == [Ended("a: exit status")]


def test_a_child_killed_before_ready_is_tried_again_a_few_times() -> None:
    supervision = supervise([("a", (), 0)], Doubling)
    supervision.start(0.0)
    now = 0.0
    for _ in range(MAX_START_ATTEMPTS - 1):
        assert isinstance(supervision.on_exit("a", "killed by SIGKILL", -9, now)[0], Restarting)
        now += 100.0
        assert supervision.on_time(now) == [Start("a")]
    assert supervision.on_exit("a", "killed by SIGKILL", -9, now) == [Ended("a: killed by SIGKILL")]


def test_a_stated_failure_after_ready_leads_to_a_restart() -> None:
    supervision = ready()
    supervision.on_failed("a", "no memory")
    assert supervision.on_exit("a", "exit status 1", 1, 2.0) == [Restarting("a", "no memory", 1.0)]


def test_a_stop_sends_sigterm_then_sigkill() -> None:
    supervision = ready()
    assert supervision.on_stop(5.0) == [Signal("a", is_kill=False), Signal("b", is_kill=False)]
    assert supervision.on_exit("a", "exit status 0", 0, 5.5) == []
    assert supervision.on_time(5.0 + STOP_GRACE_SECONDS) == [Signal("b", is_kill=True)]
    assert supervision.on_exit("b", "killed by SIGKILL", -9, 14.0) == [Ended(None)]


def test_lower_stop_ranks_end_first() -> None:
    supervision = supervise([("a", (), 1), ("b", (), 0), ("c", (), 1)], Doubling)
    supervision.start(0.0)
    assert supervision.on_stop(1.0) == [Signal("b", is_kill=False)]
    assert supervision.on_ready("a", 1.1) == []
    assert supervision.on_exit("c", "killed by SIGKILL", -9, 1.2) == []
    assert supervision.on_exit("b", "exit status 0", 0, 1.3) == [Signal("a", is_kill=False)]
    assert supervision.on_exit("a", "exit status 0", 0, 1.4) == [Ended(None)]


def test_a_second_stop_kills_at_once() -> None:
    supervision = ready()
    supervision.on_stop(5.0)
    assert supervision.on_stop(5.1) == [Signal("a", is_kill=True), Signal("b", is_kill=True)]


def test_a_child_that_waits_for_its_restart_is_not_restarted_while_stopping() -> None:
    supervision = ready()
    supervision.on_exit("a", "x", 1, 2.0)
    assert supervision.on_stop(2.1) == [Signal("b", is_kill=False)]
    assert supervision.on_time(100.0) == [Signal("b", is_kill=True)]
    assert supervision.on_exit("b", "x", -9, 100.0) == [Ended(None)]


def test_every_move_outside_the_table_is_refused() -> None:
    for state in ChildState:
        for target in ChildState:
            child = Child("x", Doubling(), state=state)
            if target in LEGAL_MOVES[state]:
                child.advance(target, 1.0)
                assert child.state is target
            else:
                with pytest.raises(AssertionError, match="x:"):
                    child.advance(target, 1.0)


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_events_ends_without_processes(seed: int) -> None:
    """Random events against a model of which processes run."""
    chance = random.Random(seed)
    supervision = supervise([("a", (), 1), ("b", (), 0), ("c", ("a",), 0)], Doubling)
    running: set[str] = set()
    ends: list[Ended] = []
    now = 0.0

    def apply(actions: list[object]) -> None:
        for action in actions:
            match action:
                case Start(name):
                    assert name not in running
                    running.add(name)
                case Signal(name):
                    assert name in running
                case Ended():
                    ends.append(action)

    apply(supervision.start(now))
    for _ in range(60):
        now += chance.random() * 4
        apply(supervision.on_time(now))
        if running and not ends:
            name = chance.choice(sorted(running))
            match chance.randrange(4):
                case 0:
                    running.discard(name)
                    apply(supervision.on_exit(name, "x", chance.choice([0, 1, -9]), now))
                case 1:
                    supervision.on_failed(name, "no")
                case _:
                    apply(supervision.on_ready(name, now))
    if not supervision.is_stopping:
        apply(supervision.on_stop(now))
    for name in sorted(running):
        running.discard(name)
        apply(supervision.on_exit(name, "x", -9, now))
    assert len(ends) == 1
    assert supervision.on_time(now + 1000) == []


def test_a_child_that_hangs_is_killed_and_restarted() -> None:
    supervision = ready()
    assert supervision.on_hung("a", "hung: nothing") == [Signal("a", is_kill=True)]
    assert supervision.on_exit("a", "killed by SIGKILL", -9, 5.0) == [
        Restarting("a", "hung: nothing", 1.0)
    ]
    assert supervision.on_time(6.0) == [Start("a")]
    assert supervision.on_exit("a", "killed by SIGKILL", -9, 7.0) == [
        Restarting("a", "killed by SIGKILL", 2.0)
    ]


def test_a_child_that_hangs_at_its_start_is_restarted() -> None:
    supervision = two()
    supervision.start(0.0)
    assert supervision.on_hung("a", "hung: nothing") == [Signal("a", is_kill=True)]
    [again] = supervision.on_exit("a", "killed by SIGKILL", -9, 5.0)
    assert again == Restarting("a", "hung: nothing", 1.0)


def test_a_stopping_child_is_not_killed_for_hanging() -> None:
    supervision = ready()
    supervision.on_stop(5.0)
    assert supervision.on_hung("a", "hung: nothing") == []
