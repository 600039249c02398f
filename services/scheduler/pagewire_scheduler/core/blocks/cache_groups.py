"""The cache groups of a worker: which blocks of a sequence the layers of each group still read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

RELEASED: Final = -1
"""In place of the id of a block that no later token reads."""


@dataclass(frozen=True, slots=True)
class CacheGroups:
    """The groups of layers that share a pool of equal blocks, each with a block table of its own.

    Attributes:
        windows: Positions that a token of each group looks back, its own included; None for all.
            Groups that look back over all positions come first.
    """

    windows: tuple[int | None, ...] = (None,)

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def has_windows(self) -> bool:
        """Whether blocks of any group come free before their sequence ends."""
        return self.windows[-1] is not None

    @property
    def has_full(self) -> bool:
        """Whether any group reads all positions. A prefix is found by its blocks in such a group;
        without one it is found from its first block on, by the blocks of all groups."""
        return self.windows[0] is None

    def first_read(self, group: int, num_tokens: int, block_size: int) -> int:
        """Return the first block that the token behind `num_tokens` others reads.

        A token at position p reads the positions from p - window + 1.
        """
        window = self.windows[group]
        return 0 if window is None else max(0, num_tokens - window + 1) // block_size

    def first_needed(self, group: int, end: int, block_size: int) -> int:
        """Return the first block of a prefix of `end` blocks that a sequence starts with."""
        return self.first_read(group, end * block_size, block_size) if self.has_full else 0

    def most_blocks(self, num_blocks: int, block_size: int) -> int:
        """Return the most blocks, over all groups, of a sequence `num_blocks` long."""
        if self.windows[-1] is None:
            return num_blocks * len(self.windows)
        # One at the start of the window that is not full of it, and the one being written.
        return sum(
            num_blocks if window is None else min(num_blocks, -(-window // block_size) + 2)
            for window in self.windows
        )

    def num_needed(self, start: int, end: int, block_size: int) -> int:
        """Return the blocks that a prefix of `end` blocks needs beyond its first `start`."""
        firsts = (self.first_needed(group, end, block_size) for group in range(len(self.windows)))
        return sum(end - max(start, first) for first in firsts)

    def longest_end(self, most: int, block_size: int, has_block: Callable[[int, int], bool]) -> int:
        """Return the length in blocks, at most `most`, of the longest prefix to start with.

        Args:
            most: Blocks that all groups without a window have.
            has_block: Whether a group with a window has the block at an index.
        """
        end, gap = most, -1
        while end:
            for group, window in enumerate(self.windows):
                if window is not None:
                    first = self.first_needed(group, end, block_size)
                    places = range(end - 1, first - 1, -1)
                    gap = next((at for at in places if not has_block(group, at)), -1)
                    if gap >= 0:
                        break
            if gap < 0:
                break
            end = gap  # every longer prefix reads the missing block, too
        return end


ONE_GROUP: Final = CacheGroups()
"""The groups of a model whose layers all read all positions."""
