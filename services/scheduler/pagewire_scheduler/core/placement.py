"""Which worker gets a sequence: the one that will reach its first new token soonest, by cached
prefix and load. Starts nothing."""

from collections.abc import Iterable

from pagewire_scheduler.core.admission import fits
from pagewire_scheduler.core.prefix_cache import find_prefix
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.worker_state import WorkerState

# What one more sequence in a batch costs its neighbours over its life, in tokens of prefill. Any
# value well above 1 spreads sequences, and well below a long prompt lets a cached prefix win.
SEQUENCE_COST_TOKENS = 16


def choose_worker(
    workers: Iterable[WorkerState], sequence: Sequence, *, is_caching: bool
) -> WorkerState | None:
    """Return the best worker for `sequence`, or None when it fits none of them.

    Note in the sequence how many of its tokens are expected to be computed there.
    """
    best, best_cost = None, 0
    sequence.num_expected = len(sequence.tokens)
    for worker in workers:
        if worker.is_draining or not fits(worker, sequence):
            continue
        num_expected = len(sequence.tokens)
        if is_caching:
            hits = find_prefix(worker.pool.cache, worker.chain_for(sequence), sequence.tokens)
            num_expected -= len(hits) * worker.info.model.block_size
        load = worker.waiting.num_expected + SEQUENCE_COST_TOKENS * worker.num_sequences
        if best is None or load + num_expected < best_cost:
            best, best_cost = worker, load + num_expected
            sequence.num_expected = num_expected
    return best


def choose_donor(workers: Iterable[WorkerState], worker: WorkerState) -> WorkerState | None:
    """Return who should hand its next waiting sequence to an idle `worker`, or None.

    Only those that could not start it in their newest plan: a sequence that has just come stays
    where its prefix is.
    """
    donors = [
        donor
        for donor in workers
        if donor.is_blocked
        and len(donor.waiting)
        and not donor.trials
        and donor.num_sequences > worker.num_sequences + 1
    ]
    return max(donors, key=lambda donor: len(donor.waiting), default=None)
