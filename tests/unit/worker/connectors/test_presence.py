"""Answers about blocks are kept for seconds, and bounded."""

from pagewire_worker.connectors.presence import MISSING_SECONDS, THERE_SECONDS, PresenceCache

NAMES = [bytes([number]) * 16 for number in range(30)]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_answers_are_kept_for_a_while() -> None:
    clock = Clock()
    cache = PresenceCache(clock=clock)
    assert cache.num_there(NAMES) == (0, False)
    cache.note(NAMES[:3], is_there=True)
    cache.note(NAMES[3:4], is_there=False)
    assert cache.num_there(NAMES) == (3, True)
    assert cache.num_there(NAMES[:2]) == (2, False)
    clock.now += MISSING_SECONDS + 0.01
    assert cache.num_there(NAMES) == (3, False), "another may have put it by now"
    clock.now += THERE_SECONDS
    assert cache.num_there(NAMES) == (0, False), "it may be evicted by now"


def test_the_newest_answer_counts_and_all_can_be_forgotten() -> None:
    cache = PresenceCache(clock=Clock())
    cache.note(NAMES[:1], is_there=True)
    cache.note(NAMES[:1], is_there=False)
    assert cache.find(NAMES[0]) is False
    cache.forget()
    assert cache.find(NAMES[0]) is None


def test_the_number_of_answers_is_bounded() -> None:
    cache = PresenceCache(10, Clock())
    cache.note(NAMES, is_there=True)
    assert len(cache) == 10
    assert [cache.find(name) for name in NAMES] == [None] * 20 + [True] * 10
