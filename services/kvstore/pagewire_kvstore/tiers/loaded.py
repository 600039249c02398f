"""The result of a load: a block and the tier that had it."""

from dataclasses import dataclass

from pagewire_kvstore.blocks.types import BlockRecord, TierState
from pagewire_kvstore.tiers.memory import Pin

__all__ = ["FoundBlock", "TierState"]


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """A block that a load found.

    Attributes:
        tier: Tier that had the block: "memory", "disk" or "redis".
        pin: Pin of the block in the arena; None when the block is not there.
    """

    record: BlockRecord
    tier: str
    pin: Pin | None = None
