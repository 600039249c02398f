"""The record of a KV load: blocks on their way from a store or another worker."""

from dataclasses import dataclass

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.blocks.cache_changes import BlockContent
from pagewire_shared.kv.load import LoadOrder

Look = tuple[int, int, int, int]
"""A state of the loads: version of the index, loads ordered and under way, and the time."""


@dataclass(slots=True, eq=False, kw_only=True)
class KvLoad:
    """A load that was ordered and not answered yet.

    Attributes:
        places: (index, group) of each block among the blocks of the sequences, by index.
        table: The destination blocks, behind the cached blocks that they continue: these must not
            be evicted meanwhile, or the loaded blocks would be of no use.
        num_bytes: Size of all blocks.
        shares: Per store that is to be asked, the bytes that come from it, and those of the loads
            that were under way from it at the order.
        overdue_at: Instant from which no sequence waits for the load.
        ordered_at: Instant of the order.
        contents: Content of each block, where changes of the cache are noted; else empty.
        is_cancelled: Whether the worker is sent a cancel.
        is_overdue: Whether the answer did not come in time.
        is_forgotten: Whether the blocks get no names: cached prefixes were forgotten meanwhile.
    """

    order: LoadOrder
    places: list[tuple[int, int]]
    table: BlockTable
    num_bytes: int
    shares: dict[str, tuple[int, int]]
    overdue_at: float
    ordered_at: float
    contents: tuple[BlockContent, ...] = ()
    is_cancelled: bool = False
    is_overdue: bool = False
    is_forgotten: bool = False

    @property
    def first(self) -> int:
        """Index of the first block."""
        return self.places[0][0]

    def end(self, num_blocks: int) -> int:
        """Return the index behind the first `num_blocks` blocks."""
        return self.places[num_blocks - 1][0] + 1 if num_blocks else self.first

    @property
    def num_bytes_ahead(self) -> int:
        """Bytes that were under way from the first store at the order."""
        return self.shares[self.order.store][1]

    @property
    def is_pull(self) -> bool:
        """Whether the blocks come from another worker, not from a store."""
        return self.order.worker is not None

    @property
    def is_joinable(self) -> bool:
        """Whether another sequence may wait for the load."""
        return not (self.is_cancelled or self.is_overdue or self.is_forgotten)
