"""Counts of a frontend's sequences of one model by place: running, or waiting for something. They
are updated as sequences move, because a heartbeat must not walk thousands of them."""

from typing import Final

from pagewire_scheduler.core.data.state_machine import State

RUNNING, FOR_CAPACITY, FOR_GRAMMAR, FOR_KV, FOR_ADAPTER = range(5)

_PLACES: Final = {
    State.RUNNING: RUNNING,
    State.WAITING_FOR_GRAMMAR: FOR_GRAMMAR,
    State.WAITING_FOR_REMOTE_KV: FOR_KV,
    State.WAITING_FOR_ADAPTER: FOR_ADAPTER,
}

Tally = list[int]
"""One number per place."""


def new_tally() -> Tally:
    """Return an empty tally."""
    return [0, 0, 0, 0, 0]


def place_of(state: State) -> int:
    """Return the place of a sequence in this state; a follower is counted at its leader's place."""
    return _PLACES.get(state, FOR_CAPACITY)
