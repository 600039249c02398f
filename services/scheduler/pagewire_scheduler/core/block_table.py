"""The blocks of one sequence in order of position; the one owner that releases them."""

from collections.abc import Iterable

from pagewire_scheduler.core.block_pool import BlockPool
from pagewire_scheduler.core.prefix_cache import NameChain


class BlockTable:
    """Blocks held by one sequence in one worker's pool.

    Attributes:
        blocks: Block ids in order of position.
        num_named: Leading blocks that have had their turn to be named.
    """

    __slots__ = ("_pool", "blocks", "num_named")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.blocks: list[int] = []
        self.num_named = 0

    def share(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks; only at the start of a table's life."""
        assert not self.blocks, "a prefix is shared into a table in use"
        for block in blocks:
            self._pool.acquire(block)
            self.blocks.append(block)
        self.num_named = len(self.blocks)

    def grow(self, num_blocks: int) -> list[int]:
        """Append fresh blocks and return them; the pool must have that many."""
        fresh = [self._pool.allocate() for _ in range(num_blocks)]
        self.blocks.extend(fresh)
        return fresh

    def name_until(self, end: int, chain: NameChain, tokens: list[int], step_id: int) -> list[int]:
        """Name the blocks before position `end` by the plan `step_id`; return their indices.

        All ids before `end` must be known. A block whose content exists under that name already
        stays nameless and private.
        """
        named: list[int] = []
        for index in range(self.num_named, end // chain.block_size):
            block = self.blocks[index]
            if self._pool.name(block, chain.name(index, tokens), step_id):
                named.append(index)
            self.num_named = index + 1
        return named

    def release(self) -> None:
        """Give all blocks back, the last first so that a prefix outlives its continuation."""
        for block in reversed(self.blocks):
            self._pool.release(block)
        self.blocks = []
        self.num_named = 0
