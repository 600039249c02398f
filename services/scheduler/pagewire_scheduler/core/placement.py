"""Which worker gets a sequence: the one that will reach its first new token soonest, by cached
prefix and load. Reads workers, changes nothing."""

from collections.abc import Iterable

from pagewire_scheduler.core.admission import fits
from pagewire_scheduler.core.prefix_cache import find_prefix
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.worker_state import WorkerState

# What one more sequence in a batch costs its neighbours over its life, in tokens of prefill. Any
# value well above 1 spreads sequences, and well below a long prompt lets a cached prefix win.
SEQUENCE_COST_TOKENS = 64


def choose_worker(
    workers: Iterable[WorkerState], sequence: Sequence, *, is_caching: bool
) -> WorkerState | None:
    """Return the best worker for `sequence`, or None when it fits none of them."""
    best, best_cost = None, 0
    for worker in workers:
        if not fits(worker, sequence):
            continue
        cost = worker.waiting.num_tokens + SEQUENCE_COST_TOKENS * worker.num_sequences
        if is_caching:
            hits = find_prefix(worker.pool.cache, worker.chain_for(sequence), sequence.tokens)
            cost -= len(hits) * worker.info.model.block_size
        if best is None or cost < best_cost:
            best, best_cost = worker, cost
    return best


def choose_donor(workers: Iterable[WorkerState], worker: WorkerState) -> WorkerState | None:
    """Return who should hand its next waiting sequence to an idle `worker`, or None."""
    donors = [w for w in workers if len(w.waiting) and w.num_sequences > worker.num_sequences + 1]
    return max(donors, key=lambda donor: len(donor.waiting), default=None)
