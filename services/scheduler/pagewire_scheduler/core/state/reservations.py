"""Updates the block reservation of a sequence (or beam search) as it grows."""

from pagewire_scheduler.core.state.capacity import num_blocks_ever
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState


def guarantee(worker: WorkerState, sequence: Sequence) -> None:
    """Reserve all further blocks of `sequence`, which has just got its first blocks."""
    sequence.placement.is_guaranteed = True
    sequence.placement.is_private = is_to_be_private(worker)
    update_reservation(worker, sequence)


def is_to_be_private(worker: WorkerState) -> bool:
    """Whether a guaranteed sequence of `worker` may share no block with others.

    Blocks that fall out of its attention window have to come free, or more would be reserved than
    there are. The beams of a search share among themselves, and that is counted.
    """
    return worker.info.groups.has_windows


def may_fork(worker: WorkerState, leader: Sequence) -> bool:
    """Whether a choice may start with the blocks of `leader`.

    A guaranteed leader then needs a block more per group, for a copy of the shared tail.
    """
    if leader.placement.is_private:
        return False
    if not leader.placement.is_guaranteed or not _has_open_tail(worker, leader):
        return True
    assert leader.table is not None
    num_free = worker.pool.num_free - worker.reservations.num_blocks
    return leader.table.is_tail_shared or num_free >= worker.pool.num_groups


def update_reservation(worker: WorkerState, sequence: Sequence) -> None:
    """Update the reservation of a sequence, or of its search, after a change of its tables."""
    if not sequence.placement.is_guaranteed:
        return
    request = sequence.request
    members = request.sequences if sequence.is_beam else [sequence]
    held = {block for member in members if member.table is not None for block in member.table.held}
    num_left = num_blocks_ever(worker, sequence) - len(held) + _num_copies(worker, sequence)
    worker.reservations.set(request if sequence.is_beam else sequence, max(0, num_left))


def _num_copies(worker: WorkerState, sequence: Sequence) -> int:
    """Return the blocks for a copy of a shared tail: the copy makes the table no longer."""
    table = sequence.table
    is_shared = table is not None and table.is_tail_shared and not sequence.is_beam
    return worker.pool.num_groups if is_shared and _has_open_tail(worker, sequence) else 0


def _has_open_tail(worker: WorkerState, sequence: Sequence) -> bool:
    """Whether the next token goes into a block that has content already."""
    return sequence.num_computed % worker.info.model.block_size > 0
