"""The order of the events of several choices, and tokens that are events of their own: neither
depends on how tokens came."""

import random

from pagewire_frontend.session.choice_order import ChoiceOrder
from pagewire_frontend.session.events import Delta, Finished, FinishReason


def events_of(choice: int, num_tokens: int) -> list[tuple[int, Delta | Finished]]:
    deltas = [Delta(choice, position, [position]) for position in range(num_tokens)]
    return [*((choice, one) for one in deltas), (choice, Finished(choice, FinishReason.STOP))]


def test_the_order_does_not_depend_on_when_events_come() -> None:
    lengths = [3, 0, 7, 1]
    found = []
    for seed in range(50):
        draw = random.Random(seed)
        waiting = [events_of(choice, length) for choice, length in enumerate(lengths)]
        order = ChoiceOrder(len(lengths))
        shown: list[tuple[int, Delta | Finished]] = []
        while any(waiting):
            some = draw.choice([one for one in waiting if one])
            taken = draw.randint(1, len(some))
            shown += order.take(some[:taken])
            del some[:taken]
        found.append(shown)
    assert all(one == found[0] for one in found)
    assert sorted(map(str, found[0])) == sorted(
        str(one) for choice, length in enumerate(lengths) for one in events_of(choice, length)
    )
    assert [choice for choice, _ in found[0][:4]] == [0, 1, 2, 3]


def test_an_event_waits_for_those_before_it_alone() -> None:
    order = ChoiceOrder(2)
    first, second = events_of(0, 2), events_of(1, 2)
    assert order.take(second) == []
    assert order.take(first[:1]) == [first[0], second[0]]
    assert order.take(first[1:]) == [first[1], second[1], first[2], second[2]]
