"""Keeps what is known of stores that are not watched: the blocks that a load did not find a moment
ago. Such a store may hold any other block, and a load finds out."""

from collections.abc import Callable, Iterable
from typing import Final

from pagewire_shared.identity.ids import BlockName

MISSING_SECONDS: Final = 2.0
"""How long a missing block is not asked for again."""

MAX_MISSING: Final = 65_536
"""Names kept as missing, of all stores together; the oldest are forgotten first."""


class OutsideStores:
    """Names that stores did not have, by the name of the store.

    Args:
        now: Returns seconds.
    """

    def __init__(self, now: Callable[[], float], max_missing: int = MAX_MISSING) -> None:
        self._now = now
        self._max_missing = max_missing
        self._missing: dict[tuple[str, BlockName], float] = {}

    def index(self, store: str) -> "OutsideIndex":
        """Return what `store` may hold."""
        return OutsideIndex(self, store)

    def note_missing(self, store: str, names: Iterable[BlockName]) -> None:
        """Take note of blocks that a load did not find."""
        for name in names:
            self._missing.pop((store, name), None)
            self._missing[store, name] = self._now() + MISSING_SECONDS
        while self._missing:
            oldest = next(iter(self._missing))
            if len(self._missing) <= self._max_missing and self._missing[oldest] > self._now():
                break
            del self._missing[oldest]

    def is_missing(self, store: str, name: BlockName) -> bool:
        """Return whether a load did not find the block a moment ago."""
        return self._missing.get((store, name), 0.0) > self._now()


class OutsideIndex:
    """One outside store as a BlockIndex."""

    __slots__ = ("_store", "_stores")

    def __init__(self, stores: OutsideStores, store: str) -> None:
        self._stores = stores
        self._store = store

    @property
    def version(self) -> int:
        """Always the same: what becomes loadable is noticed with the time of a look."""
        return 0

    def has(self, address: str, name: BlockName) -> bool:
        """Return whether the store may have `name`."""
        return not self._stores.is_missing(address, name)

    def longest_runs(self, names: Iterable[BlockName]) -> list[tuple[str, int]]:
        """Return the store with the number of names in front of the first missing one."""
        length = 0
        for name in names:
            if self._stores.is_missing(self._store, name):
                break
            length += 1
        return [(self._store, length)] if length else []
