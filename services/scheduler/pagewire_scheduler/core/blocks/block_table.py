"""The block tables of one sequence, one per cache group: its blocks by position. Only they release
the blocks."""

from collections import Counter
from collections.abc import Iterator, Sequence

from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_scheduler.core.blocks.cache_changes import content_of
from pagewire_scheduler.core.blocks.cache_groups import RELEASED, CacheGroups
from pagewire_scheduler.core.blocks.cache_shares import CacheOwner
from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix, NameChain
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.block_hash import group_name


class BlockTable:
    """Blocks held by one sequence in one worker's pool.

    Attributes:
        groups: Block ids in order of position, one list per cache group, all of one length.
        blocks: The list of the first group.
        owner: Who pays for the blocks that it names or finds; None where no bound counts.
        num_named: Leading blocks that were considered for naming.
        num_released: Leading blocks given back in each group, RELEASED in its list.
        is_tail_shared: Whether the last, partly written block may be in other tables, too.
    """

    __slots__ = (
        *("_pool", "blocks", "groups", "is_tail_shared"),
        *("num_named", "num_released", "owner"),
    )

    def __init__(self, pool: BlockPool, owner: CacheOwner | None = None) -> None:
        self._pool = pool
        self.owner = owner
        self.is_tail_shared = False
        self._clear()

    def _clear(self) -> None:
        num_groups = self._pool.num_groups
        self.groups: list[list[int]] = [[] for _ in range(num_groups)]
        self.blocks = self.groups[0]
        self.num_named = 0
        self.num_released = [0] * num_groups

    @property
    def held(self) -> list[int]:
        """The blocks that it holds, of all groups."""
        if not any(self.num_released) and len(self.groups) == 1:
            return self.blocks
        return [block for blocks in self.groups for block in blocks if block != RELEASED]

    def share(self, prefix: CachedPrefix) -> None:
        """Hold cached blocks; only at the start of a table's life."""
        assert not self.blocks, "a prefix is shared into a table in use"
        for block in prefix.held:
            self._pool.acquire(block)
            self._own(block)
        for group, blocks in enumerate(prefix.groups):
            self.groups[group].extend(blocks)
            self.num_released[group] = blocks.count(RELEASED)
        self.num_named = len(self.blocks)

    def fork(self) -> "BlockTable":
        """Return a table that holds the same blocks."""
        copy = BlockTable(self._pool, self.owner)
        for block in self.held:
            self._pool.share(block)
        for blocks, mine in zip(copy.groups, self.groups, strict=True):
            blocks.extend(mine)
        copy.num_named = self.num_named
        copy.num_released = self.num_released.copy()
        copy.is_tail_shared = self.is_tail_shared = True
        return copy

    def is_shared(self, index: int) -> bool:
        """Whether block `index` has further holders."""
        return self._pool.ref_counts[self.blocks[index]] > 1

    def replace(self, index: int) -> list[tuple[int, int]]:
        """Hold fresh blocks in place of the blocks at `index`; return (old, new) of each group.

        One block per group must be free.
        """
        replaced = []
        for blocks in self.groups:
            source, destination = blocks[index], self._pool.allocate()
            blocks[index] = destination
            self._pool.release(source)
            replaced.append((source, destination))
        return replaced

    def release_before(self, index: int, group: int = 0) -> None:
        """Give back the blocks before `index` of a group, which no later token reads."""
        blocks = self.groups[group]
        for at in range(self.num_released[group], index):
            if self._pool.pending_steps[blocks[at]]:
                return  # its name is on its way to the worker; the next call finds it
            self._pool.release(blocks[at])
            blocks[at] = RELEASED
            self.num_released[group] = at + 1

    def grow(self, num_blocks: int) -> list[int]:
        """Append `num_blocks` fresh blocks in every group; return them, group after group.

        The pool must have that many.
        """
        fresh: list[int] = []
        for blocks in self.groups:
            own = [self._pool.allocate() for _ in range(num_blocks)]
            blocks.extend(own)
            fresh += own
        return fresh

    def grow_to_load(self, end: int, groups: CacheGroups, block_size: int) -> list[tuple[int, int]]:
        """Append the fresh blocks that complete a prefix of `end` blocks.

        Return the (index, group) of each, in order of position.
        """
        start, places = len(self.blocks), []
        for group, blocks in enumerate(self.groups):
            first = max(start, groups.first_needed(group, end, block_size))
            blocks.extend([RELEASED] * (first - start))
            blocks.extend(self._pool.allocate() for _ in range(first, end))
            places += [(index, group) for index in range(first, end)]
        return sorted(places)

    def name_until(
        self, end: int, chain: NameChain, tokens: Sequence[int], step_id: int
    ) -> list[tuple[int, BlockName, int]]:
        """Name the blocks before position `end` by the plan `step_id`; return each with its name
        and its index.

        All ids before `end` must be known. A block whose content exists under that name already
        stays nameless and private.
        """
        named: list[tuple[int, BlockName, int]] = []
        changes = self._pool.changes
        for index in range(self.num_named, end // chain.block_size):
            name = chain.name(index, tokens)
            for group, blocks in enumerate(self.groups):
                block, own = blocks[index], group_name(name, group) if group else name
                if block == RELEASED:
                    continue
                is_new = self._pool.name(block, own, step_id)
                if is_new:
                    named.append((block, own, index))
                    self._own(block)
                if changes is not None:
                    changes.note(own, content_of(chain, index, group, tokens), is_new=is_new)
            self.num_named = index + 1
        return named

    def release(self) -> None:
        """Give all blocks back, the last first so that a prefix outlives its continuation."""
        for block in self._from_last():
            self._pool.release(block)
        self._clear()

    def _own(self, block: int) -> None:
        if self.owner is not None:
            self._pool.shares.own(block, self.owner)

    def _from_last(self) -> Iterator[int]:
        first = min(self.num_released)
        for blocks in zip(*(reversed(one[first:]) for one in self.groups), strict=True):
            for block in blocks:
                if block != RELEASED:
                    yield block


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
        for block in table.held:
            self._num_holders[block] += 1
            self.num_free += self._num_holders[block] == self._pool.ref_counts[block]
