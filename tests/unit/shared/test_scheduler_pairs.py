"""Addresses of the two schedulers of a cell, and the choice of the active one."""

import pytest

from pagewire_shared.errors import StartupError
from pagewire_shared.pair.addresses import parse_schedulers
from pagewire_shared.pair.choice import SILENCE_SECONDS, HeardReport, SchedulerChoice


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", ["a:1"]),
        ("a:1+b:2", ["a:1", "b:2"]),
        ("[::1]:1+[::1]:2", ["[::1]:1", "[::1]:2"]),
        ("unix:/tmp/x+y/s", ["unix:/tmp/x+y/s"]),
        ("unix:/tmp/x+y/s+unix:/tmp/t", ["unix:/tmp/x+y/s", "unix:/tmp/t"]),
        ("unix:/tmp/s+b:2", ["unix:/tmp/s", "b:2"]),
    ],
)
def test_addresses_of_a_pair(text: str, expected: list[str]) -> None:
    assert [str(one) for one in parse_schedulers(text, setting="--scheduler")] == expected


@pytest.mark.parametrize("text", ["a:1+a:1", "a:1+b:2+c:3", "a:1+b", "+a:1", ""])
def test_wrong_addresses_name_the_setting(text: str) -> None:
    with pytest.raises(StartupError, match="--scheduler"):
        parse_schedulers(text, setting="--scheduler")


def test_the_active_one_is_followed_and_reported_to_both() -> None:
    choice = SchedulerChoice()
    choice.hear(0, 7, 0.0)
    choice.hear(1, 0, 0.0)
    assert choice.active(0.0) == 0
    assert choice.report(1, 0.0) == HeardReport(7, 7, asks=False)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_lost_or_silent_one_is_replaced(is_silent: bool) -> None:
    choice = SchedulerChoice()
    choice.hear(0, 7, 0.0)
    now = SILENCE_SECONDS + 0.1
    choice.hear(1, 0, now)
    if not is_silent:
        choice.lose(0)
    assert choice.active(now) is None
    assert choice.report(1, now) == HeardReport(0, 7, asks=True)
    choice.hear(1, 8, now)
    assert choice.active(now) == 1


def test_an_older_generation_is_never_followed_again() -> None:
    choice = SchedulerChoice()
    choice.hear(1, 8, 0.0)
    choice.hear(0, 7, 0.0)
    assert choice.active(0.0) == 1
    choice.lose(1)
    assert choice.active(0.0) is None
    assert choice.report(0, 0.0) == HeardReport(0, 8, asks=True)


def test_only_the_first_standby_is_asked() -> None:
    choice = SchedulerChoice()
    choice.hear(1, 0, 0.0)
    assert choice.report(1, 0.0).asks
    choice.hear(0, 0, 0.0)
    assert choice.report(0, 0.0).asks
    assert not choice.report(1, 0.0).asks


def test_a_pause_of_this_process_is_no_silence() -> None:
    choice = SchedulerChoice()
    choice.hear(0, 7, 0.0)
    choice.forgive(10.0)
    assert choice.active(10.5) == 0
