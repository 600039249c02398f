"""Which named blocks of the pool were not sent to a store, and which of them are to be sent now.

Pure bookkeeping: ids and names, one entry per block of the pool at most, so there is nothing to
drop here. What is ready is sent oldest first: a block of a prefix is of no use without those
before it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnsentBlock:
    """One block.

    Attributes:
        block: Its id in the pool.
        name: Its content.
        tenant: Whose it is; None for the default tenant.
        slot: Whose sequence computed it.
    """

    block: int
    name: bytes
    tenant: str | None
    slot: int


class UnsentBlocks:
    """Blocks by id.

    Args:
        is_writeback: Send a block only when its sequence has left its slot, or when it is about to
            be written anew; otherwise as soon as it has a name.
    """

    def __init__(self, *, is_writeback: bool) -> None:
        self._is_writeback = is_writeback
        self._ready: OrderedDict[int, UnsentBlock] = OrderedDict()
        self._kept: dict[int, UnsentBlock] = {}

    def __len__(self) -> int:
        return len(self._ready) + len(self._kept)

    @property
    def num_ready(self) -> int:
        """Blocks that are to be sent now."""
        return len(self._ready)

    def add(self, entry: UnsentBlock) -> None:
        """Note a block that got a name, in place of what was known of it."""
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
        """Remove and return the oldest that are to be sent now."""
        num_blocks = min(max_blocks, len(self._ready))
        return [self._ready.popitem(last=False)[1] for _ in range(num_blocks)]

    def pop(self, blocks: Iterable[int]) -> list[UnsentBlock]:
        """Remove `blocks`, and return those that were here."""
        if not self._ready and not self._kept:
            return []
        found = [self._ready.pop(block, None) or self._kept.pop(block, None) for block in blocks]
        return [entry for entry in found if entry is not None]
