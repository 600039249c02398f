"""Counts drafts: how many were verified, and how many were right at each place."""

from dataclasses import dataclass, field

import numpy as np

from pagewire_shared.kv.arrays import Int64Array


@dataclass(slots=True)
class DraftCounts:
    """Totals of a replica.

    Attributes:
        most: Drafts per slot and step, at most.
        num_verified: Times that drafts of a slot were verified.
        num_tokens: Drafts that were verified.
        right_at: Right drafts by place, [most].
    """

    most: int
    num_verified: int = 0
    num_tokens: int = 0
    right_at: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        self.right_at = np.zeros(self.most, dtype=np.int64)

    def add(self, num_drafts: int, num_right: int) -> None:
        """Count the drafts of one slot in one step."""
        self.num_verified += 1
        self.num_tokens += num_drafts
        self.right_at[:num_right] += 1
