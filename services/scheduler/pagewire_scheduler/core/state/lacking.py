"""Notes what a waiting sequence lacks on a worker, and says whether it still does."""

from pagewire_scheduler.core.state.lack import Lack
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.identity.ids import BlockName


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


def still_lacks(worker: WorkerState, sequence: Sequence) -> bool:
    """Whether `sequence` certainly lacks blocks as it did when it last could not start."""
    lack = sequence.lack
    return lack is not None and lack.is_left(worker.pool, num_aside(worker, sequence))


def num_aside(worker: WorkerState, sequence: Sequence) -> int:
    """Return how many free blocks are kept for others than `sequence`."""
    return worker.pool.num_free - worker.num_free_for(sequence) + len(worker.running)
