"""Tracks named blocks that were not sent to a store, and selects the ones to send now.

It has at most one entry per block of the pool, so it never drops entries. Ready blocks are sent
oldest first: a block of a prefix is useless without the blocks before it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnsentBlock:
    """A named block that was not sent.

    Attributes:
        name: Hash of its content.
        tenant: Its tenant; None for the default tenant.
        slot: Slot of the sequence that computed it.
    """

    block: int
    name: bytes
    tenant: str | None
    slot: int


class UnsentBlocks:
    """Unsent blocks by id.

    Args:
        is_writeback: Send a block only when its sequence has left its slot, or when it is about to
            be overwritten; otherwise as soon as it has a name.
    """

    def __init__(self, *, is_writeback: bool) -> None:
        self._is_writeback = is_writeback
        self._ready: OrderedDict[int, UnsentBlock] = OrderedDict()
        self._kept: dict[int, UnsentBlock] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._kept)

    @property
    def num_ready(self) -> int:
        """Number of blocks to send now."""
        return len(self._ready)

    def add(self, entry: UnsentBlock) -> None:
        """Add a block that got a name, in place of its former entry."""
        self.pop((entry.block,))
        if self._is_writeback:
            self._kept[entry.block] = entry
        else:
            self._ready[entry.block] = entry

    def leave(self, slots: Iterable[int]) -> None:
        """Note that sequences have left their slots."""
        left = set(slots)
        if not left or not self._kept:
            return
        for entry in [entry for entry in self._kept.values() if entry.slot in left]:
            del self._kept[entry.block]
            self._ready[entry.block] = entry

    def take_ready(self, max_blocks: int) -> list[UnsentBlock]:
        """Remove and return the oldest blocks to send now."""
        num_blocks = min(max_blocks, len(self._ready))
        return [self._ready.popitem(last=False)[1] for _ in range(num_blocks)]

    def pop(self, blocks: Iterable[int]) -> list[UnsentBlock]:
        """Remove `blocks`, and return the entries that existed."""
        if not self._ready and not self._kept:
            return []
        found = [self._ready.pop(block, None) or self._kept.pop(block, None) for block in blocks]
        return [entry for entry in found if entry is not None]
