"""Index of the blocks in KV stores, kept from their events. It is a hint: a load reports the blocks
that are missing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.name_set import NameSet

MAX_NAMES: Final = 4 * 2**20
"""Names kept of one store: some 500 MB of this process. What comes beyond is not taken."""


class BlockIndex(Protocol):
    """What stores hold, as far as it is known."""

    @property
    def version(self) -> int:
        """Grows with every change that could make a run longer."""
        ...

    def has(self, address: str, name: BlockName) -> bool:
        """Return whether a store may have `name`."""
        ...

    def longest_runs(self, names: Iterable[BlockName]) -> list[tuple[str, int]]:
        """Return (store, number of leading `names` that it may have), the longest run first."""
        ...


@dataclass(slots=True)
class _Store:
    names: NameSet = field(default_factory=NameSet)
    is_up: bool = False
    num_untaken: int = 0


class RemoteIndex:
    """Names of stored blocks by the address of the store.

    Attributes:
        is_usable: Whether a reachable store has any block.
        num_live: Reachable stores, with blocks or without.
        version: Grows with every change that could make a run longer.
    """

    __slots__ = ("_max_names", "_num_copies", "_stores", "_up", "is_usable", "num_live", "version")

    def __init__(self, max_names: int = MAX_NAMES, num_copies: int = 1) -> None:
        self._max_names = max_names
        self._num_copies = num_copies
        self.num_live = 0
        self._stores: dict[str, _Store] = {}
        self._up: list[tuple[str, NameSet]] = []
        self.is_usable = False
        self.version = 0

    @property
    def num_wanted(self) -> int:
        """Copies that a block should have once it was loaded."""
        return min(self._num_copies, self.num_live)

    @property
    def usable(self) -> list[str]:
        """The reachable stores that have any block, in a fixed order."""
        return [address for address, _ in self._up]

    @property
    def num_untaken(self) -> int:
        """Names that were not entered because there were too many."""
        return sum(store.num_untaken for store in self._stores.values())

    def num_names(self, address: str) -> int:
        """Return the number of known names of a store."""
        store = self._stores.get(address)
        return len(store.names) if store is not None else 0

    def facts(self) -> list[tuple[str, bool, int]]:
        """Return address, whether it can be reached, and number of names of every store."""
        return [
            (address, store.is_up, len(store.names))
            for address, store in sorted(self._stores.items())
        ]

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

    def holders(self, names: Iterable[BlockName], stores: Sequence[str]) -> list[int]:
        """Return per name which of `stores` have it, as bits; ends at the first that none has.

        `names` is read as far as needed.
        """
        sets = [self._stores[store].names for store in stores]
        masks: list[int] = []
        for name in names:
            mask = sum(1 << bit for bit, known in enumerate(sets) if name in known)
            if not mask:
                break
            masks.append(mask)
        return masks

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
        self.num_live = sum(store.is_up for store in self._stores.values())
