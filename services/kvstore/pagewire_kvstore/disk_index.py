"""What a disk tier holds, in order of use. Pure: knows neither files nor threads."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pagewire_kvstore.block_key import BlockKey


@dataclass(slots=True)
class DiskEntry:
    """One block's file.

    Attributes:
        num_bytes: Size of the file.
        used_at: Seconds since the epoch, as the file's modification time has it.
    """

    num_bytes: int
    used_at: float


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """What has to go for a record to come.

    Attributes:
        victims: Blocks to remove, the least recently used first.
        pinned: Pinned blocks that were passed over.
        is_enough: Whether the record fits then.
    """

    victims: list[BlockKey]
    pinned: list[BlockKey]
    is_enough: bool


class DiskIndex:
    """Sizes by key, the least recently used first. All but planning is O(1)."""

    def __init__(self, entries: Iterable[tuple[BlockKey, DiskEntry]] = ()) -> None:
        oldest_first = sorted(entries, key=lambda item: (item[1].used_at, item[0]))
        self._entries = OrderedDict(oldest_first)
        self.used_bytes = sum(entry.num_bytes for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._entries

    def keys(self) -> list[BlockKey]:
        """Return all keys, the least recently used first."""
        return list(self._entries)

    def find(self, key: BlockKey) -> DiskEntry | None:
        """Return the entry, without using it."""
        return self._entries.get(key)

    def add(self, key: BlockKey, entry: DiskEntry) -> None:
        """Add as the most recently used; an entry of the same key goes."""
        self.remove(key)
        self._entries[key] = entry
        self.used_bytes += entry.num_bytes

    def use(self, key: BlockKey) -> None:
        """Make the most recently used, if it is there."""
        if key in self._entries:
            self._entries.move_to_end(key)

    def remove(self, key: BlockKey) -> None:
        """Remove, if it is there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.used_bytes -= entry.num_bytes

    def plan_room(
        self,
        key: BlockKey | None,
        num_bytes: int,
        capacity_bytes: int,
        is_pinned: Callable[[BlockKey], bool],
    ) -> EvictionPlan:
        """Return what to evict so that `num_bytes` under `key` fit; changes nothing.

        Args:
            key: What is to be put, whose former file goes anyway; None where nothing is.
            num_bytes: Size of its file.
            capacity_bytes: Most bytes of all files.
            is_pinned: Whether a block must stay.

        Looks at the victims and at the pinned blocks before them only: O(1) a victim as long as
        the caller uses what it passed over, which a pinned block is.
        """
        replaced = self._entries.get(key) if key is not None else None
        surplus = self.used_bytes + num_bytes - capacity_bytes
        surplus -= replaced.num_bytes if replaced is not None else 0
        victims: list[BlockKey] = []
        pinned: list[BlockKey] = []
        for candidate, entry in self._entries.items():
            if surplus <= 0:
                break
            if candidate == key:
                continue
            if is_pinned(candidate):
                pinned.append(candidate)
                continue
            victims.append(candidate)
            surplus -= entry.num_bytes
        return EvictionPlan(victims, pinned, surplus <= 0)
