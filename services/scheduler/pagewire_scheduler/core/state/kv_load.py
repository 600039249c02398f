"""The record of a KV load: blocks on their way from a store or another worker."""

from dataclasses import dataclass

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.data.kv_load import LoadOrder

Look = tuple[int, int, int, int]
"""When a sequence was looked at: the index, loads ordered and under way, and the time."""


@dataclass(slots=True, eq=False, kw_only=True)
class KvLoad:
    """A load that was ordered and not answered.

    Attributes:
        first: Index of its first block among those of the sequences.
        table: The blocks it goes to, behind the cached ones that it continues: these must not be
            evicted meanwhile, or what comes would be of no use.
        num_bytes: Of all its blocks.
        num_bytes_ahead: Of the loads that were under way from that store when it was ordered.
        overdue_at: Instant from which no sequence waits for it.
        ordered_at: When it was ordered.
        is_cancelled: Whether the worker is sent a cancel.
        is_overdue: Whether its answer did not come in time.
        is_forgotten: Whether its blocks get no names: cached prefixes were forgotten meanwhile.
    """

    order: LoadOrder
    first: int
    table: BlockTable
    num_bytes: int
    num_bytes_ahead: int
    overdue_at: float
    ordered_at: float
    is_cancelled: bool = False
    is_overdue: bool = False
    is_forgotten: bool = False

    @property
    def is_pull(self) -> bool:
        """Whether its blocks come from another worker, not from a store."""
        return self.order.worker is not None

    @property
    def is_joinable(self) -> bool:
        """Whether another sequence may wait for it."""
        return not (self.is_cancelled or self.is_overdue or self.is_forgotten)
