"""How many sequences of one frontend and model run, and what the others wait for: counted as they
move, since thousands may wait and a heartbeat must not walk them."""

from typing import Final

from pagewire_scheduler.core.data.state_machine import State

RUNNING, FOR_CAPACITY, FOR_GRAMMAR, FOR_KV = range(4)

_PLACES: Final = {
    State.RUNNING: RUNNING,
    State.WAITING_FOR_GRAMMAR: FOR_GRAMMAR,
    State.WAITING_FOR_REMOTE_KV: FOR_KV,
}

Tally = list[int]
"""One number per place."""


def new_tally() -> Tally:
    """Return a tally of nobody."""
    return [0, 0, 0, 0]


def place_of(state: State) -> int:
    """Return where a sequence in this state is counted; one that follows another, where that is."""
    return _PLACES.get(state, FOR_CAPACITY)
