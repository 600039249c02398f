"""Tracks named blocks that were not sent to a store, and selects the ones to send now.

It has at most one entry per block of the pool, so it never drops entries. Ready blocks are sent
oldest first: a block of a prefix is useless without the blocks before it.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from pagewire_worker.offload.connector import BlockPlacement

MAX_COPIES = 1024
"""Copies of loaded blocks that may wait: new blocks are sent before them."""


@dataclass(frozen=True, slots=True)
class UnsentBlock:
    """A named block that was not sent.

    Attributes:
        name: Hash of its content.
        tenant: Its tenant; None for the default tenant.
        slot: Slot of the sequence that computed it; of no meaning for a copy.
        placement: The stores that it goes to; None for the first one.
    """

    block: int
    name: bytes
    tenant: str | None
    slot: int
    placement: BlockPlacement | None = None

    @property
    def is_copy(self) -> bool:
        """Whether stores have the block already."""
        return self.placement is not None and bool(self.placement.held_by)


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
        self._copies: OrderedDict[int, UnsentBlock] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ready) + len(self._kept) + len(self._copies)

    @property
    def num_ready(self) -> int:
        """Number of blocks to send now."""
        return len(self._ready) + len(self._copies)

    def add(self, entry: UnsentBlock) -> None:
        """Add a block that got a name, in place of its former entry."""
        self.pop((entry.block,))
        self.drop_copies((entry.block,))
        if self._is_writeback:
            self._kept[entry.block] = entry
        else:
            self._ready[entry.block] = entry

    def add_copy(self, entry: UnsentBlock) -> bool:
        """Add a block that has too few copies; return False if too many wait."""
        is_waiting = entry.block in self._ready or entry.block in self._kept
        if is_waiting or len(self._copies) >= MAX_COPIES:
            return is_waiting
        self._copies[entry.block] = entry
        return True

    def drop_copies(self, blocks: Iterable[int]) -> int:
        """Forget copies that were to be made of `blocks`; return how many there were."""
        if not self._copies:
            return 0
        return sum(self._copies.pop(block, None) is not None for block in blocks)

    def leave(self, slots: Iterable[int]) -> None:
        """Note that sequences have left their slots."""
        left = set(slots)
        if not left or not self._kept:
            return
        for entry in [entry for entry in self._kept.values() if entry.slot in left]:
            del self._kept[entry.block]
            self._ready[entry.block] = entry

    def take_ready(self, max_blocks: int) -> list[UnsentBlock]:
        """Remove and return the oldest blocks to send now, copies last."""
        num_blocks = min(max_blocks, len(self._ready))
        taken = [self._ready.popitem(last=False)[1] for _ in range(num_blocks)]
        num_copies = min(max_blocks - num_blocks, len(self._copies))
        return taken + [self._copies.popitem(last=False)[1] for _ in range(num_copies)]

    def pop(self, blocks: Iterable[int]) -> list[UnsentBlock]:
        """Remove `blocks`, and return the entries that existed, but for copies."""
        if not self._ready and not self._kept:
            return []
        found = [self._ready.pop(block, None) or self._kept.pop(block, None) for block in blocks]
        return [entry for entry in found if entry is not None]
