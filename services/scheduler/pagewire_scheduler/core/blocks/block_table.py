"""The block table of one sequence: its blocks by position. Only the table releases them."""

from collections import Counter
from collections.abc import Iterable, Sequence

from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_scheduler.core.blocks.prefix_cache import NameChain

RELEASED = -1
"""In place of the id of a block that fell out of the attention window."""


class BlockTable:
    """Blocks held by one sequence in one worker's pool.

    Attributes:
        blocks: Block ids in order of position.
        num_named: Leading blocks that were considered for naming.
        num_released: Leading blocks given back, RELEASED in `blocks`.
        is_tail_shared: Whether the last, partly written block may be in other tables, too.
    """

    __slots__ = ("_pool", "blocks", "is_tail_shared", "num_named", "num_released")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.blocks: list[int] = []
        self.num_named = 0
        self.num_released = 0
        self.is_tail_shared = False

    def share(self, blocks: Iterable[int]) -> None:
        """Hold cached blocks; only at the start of a table's life."""
        assert not self.blocks, "a prefix is shared into a table in use"
        for block in blocks:
            self._pool.acquire(block)
            self.blocks.append(block)
        self.num_named = len(self.blocks)

    def fork(self) -> "BlockTable":
        """Return a table that holds the same blocks."""
        copy = BlockTable(self._pool)
        for block in self.blocks:
            if block != RELEASED:
                self._pool.share(block)
        copy.blocks = list(self.blocks)
        copy.num_named = self.num_named
        copy.num_released = self.num_released
        copy.is_tail_shared = self.is_tail_shared = True
        return copy

    def is_shared(self, index: int) -> bool:
        """Whether block `index` has further holders."""
        return self._pool.ref_counts[self.blocks[index]] > 1

    def replace(self, index: int) -> tuple[int, int]:
        """Hold a fresh block in place of block `index`; return (old, new). One must be free."""
        source, destination = self.blocks[index], self._pool.allocate()
        self.blocks[index] = destination
        self._pool.release(source)
        return source, destination

    def release_before(self, index: int) -> None:
        """Give back the blocks before `index`, which fell out of the attention window."""
        for at in range(self.num_released, index):
            if self._pool.pending_steps[self.blocks[at]]:
                return  # its name is on its way to the worker; the next call finds it
            self._pool.release(self.blocks[at])
            self.blocks[at] = RELEASED
            self.num_released = at + 1

    def grow(self, num_blocks: int) -> list[int]:
        """Append fresh blocks and return them; the pool must have that many."""
        fresh = [self._pool.allocate() for _ in range(num_blocks)]
        self.blocks.extend(fresh)
        return fresh

    def name_until(
        self, end: int, chain: NameChain, tokens: Sequence[int], step_id: int
    ) -> list[int]:
        """Name the blocks before position `end` by the plan `step_id`; return their indices.

        All ids before `end` must be known. A block whose content exists under that name already
        stays nameless and private.
        """
        named: list[int] = []
        for index in range(self.num_named, end // chain.block_size):
            block = self.blocks[index]
            if block != RELEASED and self._pool.name(block, chain.name(index, tokens), step_id):
                named.append(index)
            self.num_named = index + 1
        return named

    def release(self) -> None:
        """Give all blocks back, the last first so that a prefix outlives its continuation."""
        for block in reversed(self.blocks):
            if block == RELEASED:
                break
            self._pool.release(block)
        self.blocks = []
        self.num_named = self.num_released = 0


class LeavingBlocks:
    """Counts the blocks that come free when several tables are released together.

    Blocks with further holders do not come free.
    """

    __slots__ = ("_num_holders", "_pool", "num_free")

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._num_holders: Counter[int] = Counter()
        self.num_free = 0

    def add(self, table: BlockTable) -> None:
        """Count one more table."""
        for block in table.blocks:
            if block != RELEASED:
                self._num_holders[block] += 1
                self.num_free += self._num_holders[block] == self._pool.ref_counts[block]
