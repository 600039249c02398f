"""Reserved blocks: the most that sequences which were preempted too often may still need.

With its reservation such a sequence never lacks a block. It is therefore never preempted again, and
ends.
"""

from collections.abc import Hashable


class BlockReservations:
    """Reserved blocks of one pool, by owner."""

    __slots__ = ("_amounts", "num_blocks")

    def __init__(self) -> None:
        self._amounts: dict[Hashable, int] = {}
        self.num_blocks = 0

    def __len__(self) -> int:
        return len(self._amounts)

    def set(self, owner: Hashable, num_blocks: int) -> None:
        """Reserve `num_blocks` for `owner`."""
        assert num_blocks >= 0, "an owner holds more blocks than it can ever need"
        self.num_blocks += num_blocks - self._amounts.get(owner, 0)
        self._amounts[owner] = num_blocks

    def of(self, owner: Hashable) -> int:
        """Return the blocks reserved for `owner`."""
        return self._amounts.get(owner, 0)

    def drop(self, owner: Hashable) -> None:
        """Drop the reservation of `owner`."""
        self.num_blocks -= self._amounts.pop(owner, 0)
