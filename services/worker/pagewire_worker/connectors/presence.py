"""Remembers for some seconds which blocks a store has, so that it is asked once."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

MAX_NAMES: Final = 65_536
"""Some 10 MB."""

THERE_SECONDS: Final = 5.0
MISSING_SECONDS: Final = 0.5


class PresenceCache:
    """What a store answered, by name; the oldest answers are forgotten first."""

    def __init__(
        self, max_names: int = MAX_NAMES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_names = max_names
        self._clock = clock
        self._answers: dict[bytes, tuple[bool, float]] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def note(self, names: Iterable[bytes], *, is_there: bool) -> None:
        """Take an answer for each of `names`."""
        until = self._clock() + (THERE_SECONDS if is_there else MISSING_SECONDS)
        for name in names:
            self._answers.pop(name, None)
            self._answers[name] = (is_there, until)
        while len(self._answers) > self._max_names:
            del self._answers[next(iter(self._answers))]

    def forget(self) -> None:
        """Forget all: the store may be another one."""
        self._answers.clear()

    def find(self, name: bytes) -> bool | None:
        """Return whether the block is there; None if that has to be asked."""
        is_there, until = self._answers.get(name, (False, 0.0))
        return is_there if until > self._clock() else None

    def num_there(self, names: Sequence[bytes]) -> tuple[int, bool]:
        """Return the number of leading names that are there, and whether the next is missing."""
        for at, name in enumerate(names):
            is_there = self.find(name)
            if not is_there:
                return at, is_there is False
        return len(names), False
