"""Orders one KV load: chooses the store, counts the blocks that the load may take of the pool, and
makes the order."""

import math
from collections.abc import Callable
from collections.abc import Sequence as Series
from dataclasses import replace
from typing import Final

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.blocks.cache_changes import content_of
from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix
from pagewire_scheduler.core.costs.load_cost import LoadDecision, LoadReason, choose
from pagewire_scheduler.core.state.kv_load import KvLoad
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.copies import BlockCopies, parts_of
from pagewire_shared.kv.load import LoadOrder, WorkerSource

FindCopies = Callable[[Series[BlockName], Series[int]], BlockCopies]
"""Returns which stores have blocks: their names, and their indices in the prefix."""

NEVER: Final = -math.inf
"""A time at which nothing is tried again: what is left is what was measured."""


def choose_run(
    worker: WorkerState, runs: list[tuple[str, int]], start: int, now: float
) -> tuple[str, int, LoadDecision]:
    """Decide about the longest run of blocks, or the longest of a store that does not fail.

    Args:
        worker: The worker that would get the blocks.
        runs: (store, number of blocks), at least one, the longest first.
        start: Blocks in front of them that the worker has.
        now: Decides whether a slow or failing store is tried again.
    """
    loads, info = worker.loads, worker.info
    store, length, choice = *runs[0], LoadDecision(LoadReason.BROKEN)
    for store, length in runs:
        choice = choose(
            num_blocks=length,
            num_tokens=length * info.model.block_size,
            num_bytes=info.num_bytes(start, start + length),
            prefill=loads.prefill,
            link=loads.link(store),
            now=now,
            is_forced=loads.is_forced,
        )
        if choice.verdict is not LoadReason.BROKEN:
            break
    return store, length, choice


OVERDUE_SECONDS: Final = 1.0
"""After its deadline an answer still has to come through the streams."""


def num_free_for_load(worker: WorkerState, hits: CachedPrefix) -> int:
    """Return the blocks that a load which continues `hits` may take.

    These are the blocks that a starting sequence may take, less one per group that it must keep to
    start in. This holds for windows that make a sequence longer than the pool.
    """
    pool = worker.pool
    num_revived = sum(pool.ref_counts[block] == 0 for block in hits.held)
    num_kept = worker.num_kept_to_go_on + pool.num_groups
    num_free = pool.num_free - worker.reservations.num_blocks - num_revived - num_kept
    return min(num_free, worker.limits.max_load_blocks)


def longest_load(worker: WorkerState, start: int, most: int, num_free: int) -> int:
    """Return the length of the longest prefix, at most `most` blocks long, that `num_free` blocks
    complete behind `start` of them."""
    groups, size, end = worker.info.groups, worker.info.model.block_size, most
    while end > start and (excess := groups.num_needed(start, end, size) - num_free) > 0:
        end -= -(-excess // len(groups))
    return max(start, end)


def is_copy_under_way(worker: WorkerState) -> bool:
    """Return whether a step may still copy from a block that is free.

    A later step writes such a block after the copy; a load does not wait for steps.
    """
    ref_counts = worker.pool.ref_counts
    return any(
        not ref_counts[block] for step in worker.outstanding for block in step.plan.copy_sources
    )


def order_load(
    worker: WorkerState,
    sequence: Sequence,
    hits: CachedPrefix,
    *,
    store: str,
    length: int,
    verdict: LoadReason,
    timeout: float,
    now: float,
    source: WorkerSource | None = None,
    find_copies: FindCopies | None = None,
) -> KvLoad:
    """Order what a prefix needs that is `length` blocks longer than the cached `hits`.

    Return the load.

    Args:
        store: Address of a store, or the key of a worker as a source.
        verdict: The reason.
        timeout: Seconds.
        source: The worker that has the blocks; None for a store.
        find_copies: Returns which stores have blocks, given names and indices; None for one store.
    """
    chain, loads = worker.chain_for(sequence), worker.loads
    table = BlockTable(worker.pool)
    table.share(hits)  # before blocks are given out, which may be these
    end, size = len(hits) + length, chain.block_size
    places = table.grow_to_load(end, worker.info.groups, size)
    names = tuple(chain.name_in(group, at, sequence.tokens) for at, group in places)
    copies = None if find_copies is None else find_copies(names, [at for at, _ in places])
    order = LoadOrder(
        load_id=loads.next_id(),
        store=store,
        names=names,
        blocks=tuple(table.groups[group][at] for at, group in places),
        timeout_ms=max(1, round(1000 * timeout)),
        worker=source,
        copies=copies,
    )
    if copies is not None:
        order = replace(order, store=copies.stores[next(parts_of(copies.holders))[0]])
    noted = places if worker.pool.changes is not None else ()
    load = KvLoad(
        order=order,
        places=places,
        table=table,
        num_bytes=len(places) * worker.info.bytes_per_block,
        shares={
            store: (num_bytes, loads.link(store).num_bytes_under_way)
            for store, num_bytes in _bytes_by_store(order, worker.info.bytes_per_block).items()
        },
        overdue_at=now + timeout + OVERDUE_SECONDS,
        ordered_at=now,
        contents=tuple(content_of(chain, at, group, sequence.tokens) for at, group in noted),
    )
    for store, (num_bytes, _) in load.shares.items():
        loads.link(store).begin(verdict, num_bytes, now)
    loads.enter(load)
    return load


def _bytes_by_store(order: LoadOrder, bytes_per_block: int) -> dict[str, int]:
    """Return the bytes that are to come from each store."""
    if order.copies is None:
        return {order.store: len(order.names) * bytes_per_block}
    shares: dict[str, int] = {}
    for store, begin, end in parts_of(order.copies.holders):
        address = order.copies.stores[store]
        shares[address] = shares.get(address, 0) + (end - begin) * bytes_per_block
    return shares
