"""A set for millions of block names, of which no single call takes long."""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from pagewire_shared.identity.ids import BlockName

NUM_SHARDS: Final = 256


class NameSet:
    """A set of names in 256 shards by first byte, which is uniform because names are hashes.

    A growing set is copied whole in a single call, and freed whole: tens of milliseconds with a
    million names. Here each call copies one shard at most. After `clear`, each later call frees one
    old shard.
    """

    __slots__ = ("_length", "_old_shards", "_shards")

    def __init__(self, names: Iterable[BlockName] = ()) -> None:
        self._shards: list[set[BlockName]] = [set() for _ in range(NUM_SHARDS)]
        self._old_shards: list[set[BlockName]] = []
        self._length = 0
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, name: BlockName) -> bool:
        return name in self._shards[name[0]]

    def __iter__(self) -> Iterator[BlockName]:
        return chain.from_iterable(self._shards)

    def names_in(self, shard: int) -> list[BlockName]:
        """Return the names that begin with the byte `shard`."""
        return list(self._shards[shard])

    def add(self, name: BlockName) -> None:
        """Add a name, if it is new."""
        self.add_all((name,))

    def add_all(self, names: Iterable[BlockName], max_length: int | None = None) -> int:
        """Add names up to `max_length`; return the number of new names left out."""
        shards, num_left_out = self._shards, 0
        for name in names:
            shard = shards[name[0]]
            if name in shard:
                continue
            if max_length is not None and self._length >= max_length:
                num_left_out += 1
                continue
            shard.add(name)
            self._length += 1
        self._free_some()
        return num_left_out

    def discard_all(self, names: Iterable[BlockName]) -> None:
        """Remove names; unknown names are ignored."""
        for name in names:
            shard = self._shards[name[0]]
            if name in shard:
                shard.remove(name)
                self._length -= 1
        self._free_some()

    def clear(self) -> None:
        """Remove all names."""
        self._old_shards += filter(None, self._shards)
        self._shards = [set() for _ in range(NUM_SHARDS)]
        self._length = 0
        self._free_some()

    def _free_some(self) -> None:
        if self._old_shards:
            self._old_shards.pop()
