"""States, names and messages of sleep."""

import pytest

from pagewire_shared.errors import InvalidRequestError, UnavailableError
from pagewire_shared.sleep.convert import (
    mode_from_message,
    mode_to_message,
    sleep_from_message,
    sleep_to_message,
    tags_from_message,
    tags_to_message,
)
from pagewire_shared.sleep.state import (
    ALL_TAGS,
    MOVES,
    MemoryState,
    MemoryTag,
    SleepMode,
    WorkerSleep,
    check_level,
    parse_mode,
    parse_tags,
)


def test_every_state_is_reached_and_left():
    assert set(MOVES) == set(MemoryState)
    assert set.union(*map(set, MOVES.values())) == set(MemoryState)
    assert all(MOVES.values())


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: check_level(3), "level"),
        (lambda: check_level(0), "level"),
        (lambda: parse_mode("abort"), "mode"),
        (lambda: parse_mode("now"), "mode"),
        (lambda: parse_tags(["weights", "scheduling"]), "tags"),
        (lambda: mode_from_message(9), "mode"),
        (lambda: tags_from_message([0]), "tags"),
    ],
)
def test_values_that_are_none(call, field):
    with pytest.raises(InvalidRequestError) as caught:
        call()
    assert caught.value.field == field


def test_names_are_those_of_vllm():
    assert parse_tags([]) == ALL_TAGS
    assert parse_tags(["kv_cache"]) == {MemoryTag.KV_CACHE}
    assert [parse_mode(name) for name in ("keep", "wait")] == list(SleepMode)


def test_messages_and_back():
    sleep = WorkerSleep(
        state=MemoryState.WAKING,
        level=2,
        awake=frozenset({MemoryTag.WEIGHTS}),
        num_bytes=7,
        wakes_on_request=True,
        error=UnavailableError("no file", field="model"),
    )
    assert sleep_from_message(sleep_to_message(sleep)) == sleep
    assert tags_from_message(tags_to_message(ALL_TAGS)) == ALL_TAGS
    assert mode_from_message(mode_to_message(SleepMode.WAIT)) is SleepMode.WAIT
    assert mode_from_message(0) is SleepMode.KEEP
