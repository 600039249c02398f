"""The block pool of one worker: reference counts, names and states of blocks, and the free list.
Sequences and token ids belong to its callers."""

import enum

from pagewire_scheduler.core.blocks.cache_changes import BlockContent, CacheChanges
from pagewire_scheduler.core.blocks.cache_shares import CacheShares
from pagewire_scheduler.core.blocks.free_list import FreeList
from pagewire_scheduler.core.blocks.prefix_cache import PrefixCache
from pagewire_shared.identity.ids import BlockName


class BlockState(enum.Enum):
    """The use that a block's content allows."""

    FREE = "free"  # no holder, no content worth keeping
    PRIVATE = "private"  # held, nameless: written as tokens come, by its one holder
    PENDING = "pending"  # named by a step under way; shared by steps at or after it
    VALID = "valid"  # named and written; with or without a holder


class BlockPool:
    """Reference counts, names and states of `num_blocks` blocks.

    A block without a holder is in the free list. While it has a name it can still be found
    (cached); giving it out drops the name.

    Args:
        num_groups: Cache groups that the blocks are given out to.

    Attributes:
        num_released: How often a block lost its last holder.
        shared_early: PENDING blocks that a second holder has found by their names.
        shares: Bounds of what tenants keep.
        changes: Notes of what enters and leaves `cache`; None where no caller takes them. The one
            who names a block notes it.
    """

    __slots__ = (
        "_free",
        "cache",
        "changes",
        "names",
        "num_blocks",
        "num_groups",
        "num_released",
        "pending_steps",
        "ref_counts",
        "shared_early",
        "shares",
    )

    def __init__(self, num_blocks: int, num_groups: int = 1) -> None:
        self.num_blocks = num_blocks
        self.num_groups = num_groups
        self.ref_counts = [0] * num_blocks
        self.names: list[BlockName | None] = [None] * num_blocks
        self.pending_steps = [0] * num_blocks  # 0: not pending; step ids start at 1
        self.shared_early: set[int] = set()
        self.cache = PrefixCache()
        self.shares = CacheShares()
        self.changes: CacheChanges | None = None
        self.num_released = 0
        self._free = FreeList(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks that can be given out, cached ones included."""
        return len(self._free)

    @property
    def free_list(self) -> FreeList:
        """The free list, for audits."""
        return self._free

    def state(self, block: int) -> BlockState:
        """Return the state of `block`."""
        if self.names[block] is not None:
            return BlockState.PENDING if self.pending_steps[block] else BlockState.VALID
        return BlockState.PRIVATE if self.ref_counts[block] else BlockState.FREE

    def allocate(self) -> int:
        """Give out the least recently used block with one holder. `num_free` must not be 0."""
        block = self._free.pop_head()
        self.unname(block)
        self.ref_counts[block] = 1
        return block

    def acquire(self, block: int) -> None:
        """Add a holder to a named block."""
        assert self.names[block] is not None, f"block {block} is shared without a name"
        if self.ref_counts[block] == 0:
            self._free.remove(block)
            self.shares.busy(block)
        if self.pending_steps[block]:
            self.shared_early.add(block)
        self.ref_counts[block] += 1

    def share(self, block: int) -> None:
        """Add a holder to a held block, named or not: tables are forked."""
        assert self.ref_counts[block], f"block {block} is shared and has no holder"
        self.ref_counts[block] += 1

    def release(self, block: int) -> None:
        """Take a holder away; without holders the block may be given out again."""
        count = self.ref_counts[block] - 1
        assert count >= 0, f"block {block} is released more often than held"
        self.ref_counts[block] = count
        if count:
            return
        self.num_released += 1
        if self.names[block] is None:
            self._free.push_head(block)
        else:
            assert not self.pending_steps[block], f"block {block} is free and still being written"
            self._free.push_tail(block)
            for excess in self.shares.idle(block):
                self._free.remove(excess)
                self._free.push_head(excess)

    def name(self, block: int, name: BlockName, step_id: int) -> bool:
        """Name a held block by the plan `step_id`; False when another block has that name."""
        assert self.names[block] is None, f"block {block} is named twice"
        if not self.cache.put(name, block):
            return False
        self.names[block] = name
        self.pending_steps[block] = step_id
        return True

    def publish(self, block: int, name: BlockName) -> bool:
        """Name a held block that has its content already; False when another has that name."""
        assert self.names[block] is None, f"block {block} is named twice"
        assert self.ref_counts[block], f"block {block} is named and has no holder"
        if not self.cache.put(name, block):
            return False
        self.names[block] = name
        return True

    def validate(self, block: int, step_id: int) -> None:
        """Make `block` VALID if it is PENDING by `step_id`, which has returned."""
        if self.pending_steps[block] == step_id:
            self.pending_steps[block] = 0
            self.shared_early.discard(block)

    def unname(self, block: int) -> None:
        """Forget the name of `block`, if it has one: the prefix cache has it no longer."""
        name = self.names[block]
        if name is not None:
            self.cache.drop(name)
            if self.changes is not None:
                self.changes.removed(name)
            self.names[block] = None
            self.shares.forget(block)
            self.pending_steps[block] = 0
            self.shared_early.discard(block)

    def forget_names(self) -> list[int]:
        """Forget all names but those given by steps under way; return the blocks that had one."""
        named = [block for _, block in self.cache.items() if not self.pending_steps[block]]
        if self.changes is not None and len(named) == len(self.cache):
            self.changes.cleared()
        for block in named:
            self.unname(block)
        return named

    def adopt(self, block: int, name: BlockName) -> None:
        """Enter a block that the worker reports as VALID. A name taken already is ignored."""
        if self.names[block] is None and self.cache.put(name, block):
            self.names[block] = name
            if self.changes is not None:
                self.changes.stored(name, BlockContent(name))
            self._free.remove(block)
            self._free.push_tail(block)
