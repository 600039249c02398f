"""Index of the blocks in KV stores, kept from their events. It is a hint: a load reports the blocks
that are missing."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.name_set import NameSet

MAX_NAMES: Final = 4 * 2**20
"""Names kept of one store: some 500 MB of this process. What comes beyond is not taken."""


@dataclass(slots=True)
class _Store:
    names: NameSet = field(default_factory=NameSet)
    is_up: bool = False
    num_untaken: int = 0


class RemoteIndex:
    """Names of stored blocks by the address of the store.

    Attributes:
        is_usable: Whether a reachable store has any block.
        version: Grows with every change that could make a run longer.
    """

    __slots__ = ("_max_names", "_stores", "_up", "is_usable", "version")

    def __init__(self, max_names: int = MAX_NAMES) -> None:
        self._max_names = max_names
        self._stores: dict[str, _Store] = {}
        self._up: list[tuple[str, NameSet]] = []
        self.is_usable = False
        self.version = 0

    @property
    def num_untaken(self) -> int:
        """Names that were not entered because there were too many."""
        return sum(store.num_untaken for store in self._stores.values())

    def num_names(self, address: str) -> int:
        """Return the number of known names of a store."""
        store = self._stores.get(address)
        return len(store.names) if store is not None else 0

    def has(self, address: str, name: BlockName) -> bool:
        """Return whether a store has `name`."""
        store = self._stores.get(address)
        return store is not None and name in store.names

    def addresses(self) -> list[str]:
        """Return the addresses of all stores that were heard of."""
        return list(self._stores)

    def names_in(self, address: str, shard: int) -> list[BlockName]:
        """Return the names of a store that begin with the byte `shard`."""
        store = self._stores.get(address)
        return [] if store is None else store.names.names_in(shard)

    def stored(self, address: str, names: Iterable[BlockName]) -> None:
        """Enter names that a store has from now on."""
        store = self._stores.setdefault(address, _Store())
        store.num_untaken += store.names.add_all(names, self._max_names)
        self.version += 1
        self._note_up()

    def removed(self, address: str, names: Iterable[BlockName]) -> None:
        """Remove names that a store has no longer."""
        store = self._stores.get(address)
        if store is not None:
            store.names.discard_all(names)
            self._note_up()

    def cleared(self, address: str) -> None:
        """Remove all names of a store."""
        store = self._stores.get(address)
        if store is not None:
            store.names.clear()
            self._note_up()

    def set_up(self, address: str, *, is_up: bool) -> None:
        """Set whether a store can be reached; its names stay."""
        self._stores.setdefault(address, _Store()).is_up = is_up
        self.version += 1
        self._note_up()

    def longest_runs(self, names: Iterable[BlockName]) -> list[tuple[str, int]]:
        """Return (store, number of leading `names` that it has), the longest run first.

        Only reachable stores that have the first name count. `names` is read as far as needed.
        """
        runs: list[tuple[str, int]] = []
        left = self._up
        length = 0
        for name in names:
            still = [entry for entry in left if name in entry[1]]
            if len(still) < len(left):
                runs += [(entry[0], length) for entry in left if name not in entry[1]]
                left = still
            if not left:
                break
            length += 1
        runs += [(entry[0], length) for entry in left]
        return [run for run in reversed(runs) if run[1]]

    def _note_up(self) -> None:
        self._up = [
            (address, store.names)
            for address, store in sorted(self._stores.items())
            if store.is_up and store.names
        ]
        self.is_usable = bool(self._up)
