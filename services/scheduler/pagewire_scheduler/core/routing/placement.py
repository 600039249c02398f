"""Chooses the worker of a sequence: the one that reaches the first new token soonest, by cached
prefix and load."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from typing import Final

from pagewire_scheduler.core.blocks.prefix_cache import prefix_length
from pagewire_scheduler.core.state.capacity import fits
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.orders import NEVER, choose_run
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_scheduler.core.transfers.spread import choose_spread, find_spread, is_spread
from pagewire_shared.identity.ids import BlockName

# What one more sequence in a batch costs its neighbours over its life, in tokens of prefill. Any
# value well above 1 spreads sequences, and well below a long prompt lets a cached prefix win.
SEQUENCE_COST_TOKENS = 16
# Tokens computed again delay all who come after, too; so they weigh more than a wait of their own.
PREFILL_WEIGHT = 2
# A load is chosen where it takes at most one part in so many of computing; see `load_choice`.
LOAD_SHARE = 2
WARM_ADAPTER_TOKENS: Final = 64
COLD_ADAPTER_TOKENS: Final = 512
"""What loading an adapter from the worker's memory, or into it, costs in tokens of prefill."""

TURN_TOKENS: Final = 256
"""What it costs, in tokens of prefill, that an adapter has to wait for its turn."""

MAX_PASSED: Final = 8
"""Sequences at the head of a queue that are looked at by who has room."""

MAX_LOOKED_AT: Final = 8
"""Workers of a kind whose caches go about as far that are looked at for one sequence."""


def by_kind(workers: Iterable[WorkerState]) -> list[list[WorkerState]]:
    """Return workers in groups. Workers of a group differ only in load and blocks."""
    groups: dict[object, list[WorkerState]] = {}
    for worker in workers:
        groups.setdefault(worker.kind, []).append(worker)
    return list(groups.values())


class SoonestFirstToken:
    """The placement policy of a cell, by cached prefix and load."""

    def __init__(self, stores: RemoteIndex, *, is_caching: bool) -> None:
        self._stores = stores
        self._is_caching = is_caching

    def choose_worker(
        self, kinds: Iterable[Seq[WorkerState]], sequence: Sequence
    ) -> WorkerState | None:
        """Return the best worker for `sequence`, or None when it fits none of them.

        Sets the number of tokens that the sequence is expected to compute there. Of hundreds of
        workers only some are examined: the least loaded among those with similar cached prefixes.

        Args:
            kinds: Workers that take sequences, by kind.
        """
        best, best_cost = None, 0
        sequence.placement.num_expected = len(sequence.tokens)
        is_looking = self._is_caching and sequence.request.reads_cache
        for workers in kinds:
            if not fits(workers[0], sequence):
                continue
            groups = _by_prefix(workers, sequence) if is_looking else [workers]
            for group in groups:
                # Who has nothing cached differs by load only, unless a store has something.
                for worker in _candidates(group, sequence):
                    expected = self._num_expected(worker, sequence)
                    cost = _load(worker) + PREFILL_WEIGHT * expected
                    cost += adapter_cost(worker, sequence)
                    if best is None or cost < best_cost:
                        best, best_cost = worker, cost
                        sequence.placement.num_expected = expected
        return best

    def take_over(
        self,
        donors: Iterable[WorkerState],
        worker: WorkerState,
        *,
        may_take: Callable[[Sequence], bool],
    ) -> Sequence | None:
        """Take a waiting sequence from a donor that should hand one to an idle `worker`, or None.

        A donor without free slots or blocks gives its next sequence, which could wait for long. A
        donor whose token budget is used up gives a sequence only if the move is cheaper than to
        stay. `may_take` returns whether `worker` may have a sequence.
        """
        having = [
            donor
            for donor in donors
            if len(donor.waiting)
            and not donor.fault_isolation
            and donor.num_sequences > worker.num_sequences + 1
        ]
        for donor in sorted(having, key=lambda donor: -len(donor.waiting)):
            for index in range(MAX_PASSED):
                sequence = donor.waiting.at(index)
                if sequence is None:
                    break
                # A sequence that is too large or meant for others does not block the next ones.
                if not may_take(sequence) or not fits(worker, sequence):
                    continue
                expected = self._num_expected(worker, sequence)
                num_more = expected - sequence.placement.num_expected
                num_more += adapter_cost(worker, sequence)
                if donor.is_blocked or _load(worker) + PREFILL_WEIGHT * num_more < _load(donor):
                    donor.waiting.remove(sequence)
                    donor.touch()
                    sequence.placement.num_expected = expected
                    return sequence
                break  # it is better off there, and its turn comes soon
        return None

    def _num_expected(self, worker: WorkerState, sequence: Sequence) -> int:
        return num_expected(worker, sequence, self._stores, is_caching=self._is_caching)


def adapter_cost(worker: WorkerState, sequence: Sequence) -> int:
    """Return the cost, in tokens of prefill, of having the adapter of `sequence` on `worker`."""
    adapter, adapters = sequence.request.submission.adapter, worker.adapters
    if not adapter or adapters.find(adapter) is not None:
        return 0
    num_turns = len(worker.aside.adapting.wanted)
    num_free = sum(not slot.num_users for slot in adapters.slots)
    cost = WARM_ADAPTER_TOKENS if adapter in adapters.warm else COLD_ADAPTER_TOKENS
    return cost + TURN_TOKENS * max(0, num_turns + 1 - num_free)


def _candidates(workers: Seq[WorkerState], sequence: Sequence) -> list[WorkerState]:
    """Return the least loaded of `workers`; for an adapter also those that have it."""
    some = heapq.nsmallest(MAX_LOOKED_AT, workers, key=_load)
    adapter = sequence.request.submission.adapter
    if adapter and len(workers) > MAX_LOOKED_AT:
        having = (one for one in workers if one.adapters.find(adapter) is not None)
        some += heapq.nsmallest(MAX_LOOKED_AT, having, key=_load)
    return some


def _by_prefix(workers: Seq[WorkerState], sequence: Sequence) -> Iterator[Seq[WorkerState]]:
    """Yield workers of one kind by how far their caches go, to a power of two of blocks."""
    tokens, chain = sequence.tokens, workers[0].chain_for(sequence)
    end = (len(tokens) - 1) // chain.block_size
    depth = 1
    while workers and depth <= end:
        name = chain.name(depth - 1, tokens)
        further = [worker for worker in workers if name in worker.pool.cache.blocks]
        if len(further) < len(workers):
            yield [worker for worker in workers if name not in worker.pool.cache.blocks]
        workers, depth = further, 2 * depth
    if workers:
        yield workers


def num_tokens_ahead(worker: WorkerState) -> int:
    """Return the tokens to be computed on `worker` before a sequence that arrives now."""
    running = sum(max(0, sequence.num_to_compute - 1) for sequence in worker.running)
    return worker.waiting.num_expected + running


def num_expected(
    worker: WorkerState, sequence: Sequence, stores: RemoteIndex, *, is_caching: bool = True
) -> int:
    """Return the tokens of `sequence` that would be computed on `worker`.

    Tokens that can be loaded count in part, so blocks on the worker itself are better.
    """
    if not is_caching or not sequence.request.reads_cache:
        return len(sequence.tokens)
    tokens, chain = sequence.tokens, worker.chain_for(sequence)
    num_hits = prefix_length(worker.pool.cache, chain, tokens)
    expected = len(tokens) - num_hits * chain.block_size
    # What an outside store holds is not known, and its workers reach it alike.
    if stores.is_usable and worker.info.loads_blocks and not worker.info.outside_store:
        end = (len(tokens) - 1) // chain.block_size
        names = (chain.name(at, tokens) for at in range(num_hits, end))
        num_loadable = _num_loadable(worker, stores, names, num_hits) * chain.block_size
        expected -= num_loadable - num_loadable // LOAD_SHARE
    return expected


def _num_loadable(
    worker: WorkerState, stores: RemoteIndex, names: Iterator[BlockName], start: int
) -> int:
    """Return the blocks that `worker` would load rather than compute, if the load succeeds."""
    if is_spread(worker, stores):
        spread = find_spread(worker, stores, names, NEVER)
        if spread is None:
            return 0
        length = len(spread.holders)
        choice = choose_spread(worker, spread, start, length, NEVER)
    else:
        runs = stores.longest_runs(names)
        if not runs:
            return 0
        _, length, choice = choose_run(worker, runs, start, NEVER)
    return length if choice.verdict.is_load else 0


def _load(worker: WorkerState) -> int:
    return worker.waiting.num_expected + SEQUENCE_COST_TOKENS * worker.num_sequences
