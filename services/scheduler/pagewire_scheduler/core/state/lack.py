"""The blocks that a waiting sequence lacked when it was last examined: a lower bound shows, without
a walk over its cached prefix, that it still cannot start."""

from dataclasses import dataclass

from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_shared.identity.ids import BlockName


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """The blocks that a sequence lacked on a worker without attention window.

    The lack shrinks by at most one for each block that is given back since, for each block that is
    set aside no more and for each sequence that runs no more; and when the cached prefix grows.
    Blocks that others take from the free list, cached or not, make the lack no smaller: a cached
    block that they hold need not be taken, and is not free.

    Attributes:
        num_missing: Blocks that were missing.
        num_released: Blocks of the pool given back until then.
        num_aside: Blocks that were kept for others.
        next_name: The first block of the prefix that was not cached; None where all were.
    """

    pool: BlockPool
    num_missing: int
    num_released: int
    num_aside: int
    next_name: BlockName | None

    def is_left(self, pool: BlockPool, num_aside: int) -> bool:
        """Return whether the sequence certainly still lacks blocks of `pool`.

        Args:
            num_aside: Blocks that are kept for others now.
        """
        if pool is not self.pool or self.next_name in pool.cache.blocks:
            return False
        num_gained = pool.num_released - self.num_released + max(0, self.num_aside - num_aside)
        return num_gained < self.num_missing
