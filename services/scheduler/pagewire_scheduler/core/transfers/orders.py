"""Orders one KV load: chooses the store, counts the blocks that the load may take of the pool, and
makes the order."""

import math
from typing import Final

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.costs.load_cost import LoadDecision, LoadReason, choose
from pagewire_scheduler.core.state.kv_load import KvLoad
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.kv.load import LoadOrder, WorkerSource

NEVER: Final = -math.inf
"""A time at which nothing is tried again: what is left is what was measured."""


def choose_run(
    worker: WorkerState, runs: list[tuple[str, int]], now: float
) -> tuple[str, int, LoadDecision]:
    """Decide about the longest run of blocks, or the longest of a store that does not fail.

    Args:
        worker: The worker that would get the blocks.
        runs: (store, number of blocks), at least one, the longest first.
        now: Decides whether a slow or failing store is tried again.
    """
    loads, info = worker.loads, worker.info
    store, length, choice = *runs[0], LoadDecision(LoadReason.BROKEN)
    for store, length in runs:
        choice = choose(
            num_blocks=length,
            num_tokens=length * info.model.block_size,
            num_bytes=length * info.bytes_per_block,
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


def num_free_for_load(worker: WorkerState, hits: list[int]) -> int:
    """Return the blocks that a load which continues `hits` may take.

    These are the blocks that a starting sequence may take, less one that it must keep to start in.
    This holds for windows that make a sequence longer than the pool.
    """
    pool = worker.pool
    num_revived = sum(pool.ref_counts[block] == 0 for block in hits)
    num_free = (
        pool.num_free - worker.reservations.num_blocks - num_revived - len(worker.running) - 1
    )
    return min(num_free, worker.limits.max_load_blocks)


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
    hits: list[int],
    *,
    store: str,
    length: int,
    verdict: LoadReason,
    timeout: float,
    now: float,
    source: WorkerSource | None = None,
) -> KvLoad:
    """Order `length` blocks of `sequence` behind the cached `hits`; return the load.

    Args:
        store: Address of a store, or the key of a worker as a source.
        verdict: The reason.
        timeout: Seconds.
        source: The worker that has the blocks; None for a store.
    """
    chain, loads = worker.chain_for(sequence), worker.loads
    table = BlockTable(worker.pool)
    table.share(hits)  # before blocks are given out, which may be these
    order = LoadOrder(
        load_id=loads.next_id(),
        store=store,
        names=tuple(chain.name(len(hits) + at, sequence.tokens) for at in range(length)),
        blocks=tuple(table.grow(length)),
        timeout_ms=max(1, round(1000 * timeout)),
        worker=source,
    )
    link, num_bytes = loads.link(store), length * worker.info.bytes_per_block
    overdue_at = now + timeout + OVERDUE_SECONDS
    load = KvLoad(
        order=order,
        first=len(hits),
        table=table,
        num_bytes=num_bytes,
        num_bytes_ahead=link.num_bytes_under_way,
        overdue_at=overdue_at,
        ordered_at=now,
    )
    link.begin(verdict, num_bytes, now)
    loads.enter(load)
    return load
