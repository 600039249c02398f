"""A block that was found. Plain data."""

from dataclasses import dataclass

from pagewire_kvstore.blocks.types import BlockRecord, TierState
from pagewire_kvstore.tiers.memory import Hold

__all__ = ["FoundBlock", "TierState"]


@dataclass(frozen=True, slots=True)
class FoundBlock:
    """A block that a load found.

    Attributes:
        record: The block.
        tier: Where it was: "memory", "disk" or "redis".
        hold: Where it lies in shared memory; None when it does not.
    """

    record: BlockRecord
    tier: str
    hold: Hold | None = None
