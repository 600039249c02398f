"""Puts the events of several choices into one order that does not depend on when they came."""

from collections import deque
from collections.abc import Iterable

from pagewire_frontend.session.events import Delta, Finished

NumberedEvent = tuple[int, Delta | Finished]
"""The number of a choice among those of all prompts, and its event."""


class ChoiceOrder:
    """Takes events as they come and gives them turn by turn: one of each choice that has not ended,
    in the order of their numbers. An event waits for those before it."""

    def __init__(self, num_choices: int) -> None:
        self._waiting: list[deque[NumberedEvent]] = [deque() for _ in range(num_choices)]
        self._running = list(range(num_choices))
        self._turn = 0
        """Index into `_running` of the choice whose event is next."""

    def take(self, events: Iterable[NumberedEvent]) -> list[NumberedEvent]:
        """Take events, those of a choice in order; return those whose turn has come."""
        for event in events:
            self._waiting[event[0]].append(event)
        ready: list[NumberedEvent] = []
        while self._running and self._waiting[self._running[self._turn]]:
            choice = self._running[self._turn]
            event = self._waiting[choice].popleft()
            ready.append(event)
            if isinstance(event[1], Finished):
                self._running.pop(self._turn)
            else:
                self._turn += 1
            if self._turn >= len(self._running):
                self._turn = 0
        return ready
