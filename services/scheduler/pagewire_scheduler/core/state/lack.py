"""The blocks that a waiting sequence lacked when it was last examined: a lower bound shows, without
a walk over its cached prefix, that it still cannot start."""

from dataclasses import dataclass

from pagewire_scheduler.core.blocks.block_pool import BlockPool
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.identity.ids import BlockName


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """A sequence could not start on a worker without attention window.

    What it lacks shrinks by at most one for each block that is given back since, for each block
    that is set aside no more and for each sequence that runs no more; and when its prefix goes on.
    What others take from the free list, cached or not, makes it no smaller: a cached block that
    they hold is one that it need not take, and one that is not free.

    Attributes:
        num_missing: Blocks that it lacked.
        num_released: Blocks of the pool given back until then.
        num_aside: Blocks that were kept for others.
        next_name: The first block of its prefix that was not cached; None where all were.
    """

    pool: BlockPool
    num_missing: int
    num_released: int
    num_aside: int
    next_name: BlockName | None

    def is_left(self, worker: WorkerState, sequence: Sequence) -> bool:
        """Whether it certainly still lacks some."""
        pool = worker.pool
        if pool is not self.pool or self.next_name in pool.cache.blocks:
            return False
        num_gained = pool.num_released - self.num_released
        num_gained += max(0, self.num_aside - num_aside(worker, sequence))
        return num_gained < self.num_missing


def note_lack(
    worker: WorkerState, sequence: Sequence, num_missing: int, next_name: BlockName | None
) -> Lack:
    """Return that `sequence` lacks so many blocks now."""
    pool, aside = worker.pool, num_aside(worker, sequence)
    return Lack(
        pool=pool,
        num_missing=num_missing,
        num_released=pool.num_released,
        num_aside=aside,
        next_name=next_name,
    )


def num_aside(worker: WorkerState, sequence: Sequence) -> int:
    """Return how many free blocks are kept for others than `sequence`."""
    return worker.pool.num_free - worker.num_free_for(sequence) + len(worker.running)
