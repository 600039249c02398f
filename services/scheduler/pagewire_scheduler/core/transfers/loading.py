"""Loads blocks from KV stores for waiting sequences: orders loads, lets several sequences wait for
one load, and requeues them with the answer.

A load takes free blocks that are not reserved. It holds them, and the cached blocks in front of
them, until the answer. Loads are for queued sequences, which have no slot and no blocks yet. With
the answer the blocks enter the prefix cache, where the sequence finds them when it starts.
"""

import math
from collections.abc import Iterator
from typing import Final

from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix
from pagewire_scheduler.core.costs.load_cost import MIN_BLOCKS
from pagewire_scheduler.core.data.settings import CoreCounts, LoadCounts
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.planning.schedule_waiting import MAX_SKIPS
from pagewire_scheduler.core.state.capacity import MAX_PREEMPTIONS
from pagewire_scheduler.core.state.kv_load import KvLoad
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_scheduler.core.transfers.handoffs import end_handoff, go_on
from pagewire_scheduler.core.transfers.orders import (
    choose_run,
    is_copy_under_way,
    longest_load,
    num_free_for_load,
    order_load,
)
from pagewire_scheduler.core.transfers.pulls import finish_pull
from pagewire_scheduler.core.transfers.remote_index import RemoteIndex
from pagewire_shared.errors import WireError
from pagewire_shared.kv.load import LoadAnswer, LoadOutcome
from pagewire_shared.kv.tier import MAX_TIERS, is_tier_name, tier_label

MAX_LOADS: Final = 4
"""Loads of a worker from stores that are not answered."""

POOL_SHARE: Final = 2
"""Loads hold at most one in so many blocks of a pool."""

MAX_LOOKED_AT: Final = 8
# Skips at most this many sequences that were already examined.
_MAX_PASSED: Final = 32


def order_loads(worker: WorkerState, index: RemoteIndex, counts: LoadCounts, now: float) -> None:
    """Order loads for the first sequences of the queue, before a plan that may start them."""
    if worker.fault_isolation or is_copy_under_way(worker):
        return
    at = num_looked_at = 0
    look = worker.loads.look(index.version, now)
    while num_looked_at < MAX_LOOKED_AT and at < _MAX_PASSED:
        sequence = worker.waiting.at(at)
        # No load takes blocks that a sequence passed MAX_SKIPS times waits for.
        if sequence is None or sequence.fairness.num_skipped >= MAX_SKIPS:
            return
        if sequence.remote.num_loads_left and sequence.remote.load_look != look:
            num_looked_at += 1
            sequence.remote.load_look = look
            if _consider(worker, sequence, index, counts, now):
                num_looked_at -= 1
                look = worker.loads.look(index.version, now)
                continue
        at += 1


def check_answer(worker: WorkerState, answer: LoadAnswer) -> KvLoad | None:
    """Return the load that `answer` is about, or None when the load is unknown.

    Raises:
        WireError: The answer contradicts the order.
    """
    load = worker.loads.under_way.get(answer.load_id)
    if load is None:
        return None
    what = f"the answer to load {answer.load_id}"
    if not 0 <= answer.num_blocks <= len(load.order.blocks):
        raise WireError(f"{what} has {answer.num_blocks} of {len(load.order.blocks)} blocks")
    tiers = [tier for tier, _ in answer.tiers]
    is_known = len(tiers) <= MAX_TIERS and all(map(is_tier_name, tiers))
    if len(set(tiers)) < len(tiers) or not is_known:
        raise WireError(f"{what} names tiers {tiers}")
    counted = [count for _, count in answer.tiers]
    if min(counted, default=0) < 0 or sum(counted) > answer.num_blocks:
        raise WireError(f"{what} counts {sum(counted)} of {answer.num_blocks} blocks by tier")
    if answer.num_bytes < 0 or not 0 <= answer.seconds < math.inf:
        raise WireError(f"{what} took {answer.seconds} s for {answer.num_bytes} bytes")
    return load


def finish_load(
    worker: WorkerState, load: KvLoad, answer: LoadAnswer, counts: CoreCounts, now: float
) -> None:
    """Take the answer to `load`: cache the received blocks, release all of them, and requeue the
    sequences that waited.
    """
    pool, order = worker.pool, load.order
    places = list(zip(order.blocks, order.names, strict=True))[: answer.num_blocks]
    for at, (block, name) in enumerate(places):
        # A name that another block has by now: the worker would offer this one, too.
        if load.is_forgotten or not pool.publish(block, name):
            worker.forget_on_worker(block)
        elif pool.changes is not None:
            pool.changes.stored(name, load.contents[at])
    waiting = worker.loads.waiting_for(load)
    worker.loads.leave(load)
    if load.is_pull:
        finish_pull(worker, load, answer, waiting, counts.handoffs, now)
        return
    _judge(worker, load, answer, now)
    block_size = worker.info.model.block_size
    counts.loads.outcomes[answer.outcome] += 1
    for tier, num_blocks in answer.tiers:
        counts.loads.blocks[tier_label(tier)] += num_blocks
    loaded = dict(_tiers_by_index(load, answer))
    for tier in loaded.values():
        counts.loads.tokens[tier_label(tier)] += block_size
    for sequence in waiting:
        sequence.times.note_transfer(now - load.ordered_at, answer.num_bytes, None)
        if answer.num_blocks and not load.is_forgotten:
            sequence.remote.loaded.update(loaded)
        else:
            sequence.remote.num_loads_left = 0
        go_on(worker, sequence, now)


def give_up_overdue(worker: WorkerState, counts: LoadCounts, now: float) -> None:
    """Requeue sequences that wait for overdue answers; the loads keep their blocks."""
    for load in worker.loads.under_way.values():
        if load.is_overdue or now < load.overdue_at:
            continue
        load.is_overdue = True
        counts.num_overdue += 1
        worker.loads.link(load.order.store).breaker.fail(now)
        for sequence in worker.loads.waiting_for(load):
            sequence.remote.num_loads_left = 0
            go_on(worker, sequence, now)


def yield_blocks(worker: WorkerState) -> None:
    """Cancel loads when no sequence can go on, but not loads that older sequences wait for.

    A load that stays ends by its deadline.
    """
    stuck = [*worker.running[:1], *worker.waiting]
    if not stuck:
        return
    oldest = min(sequence.key for sequence in stuck)
    for load in worker.loads.under_way.values():
        if all(sequence.key > oldest for sequence in worker.loads.waiting_for(load)):
            worker.loads.cancel(load)


def take_loading(worker: WorkerState) -> list[Sequence]:
    """Take out the sequences that wait for loads, in order, and move them to WAITING; prefills
    stay.
    """
    there = [sequence for sequence in worker.aside.loading if not sequence.is_prefill]
    taken = sorted(there, key=lambda sequence: sequence.key)
    for sequence in taken:
        worker.aside.loading.remove(sequence)
        sequence.remote.load = None
        if sequence in worker.handoffs.incoming:
            end_handoff(worker.handoffs.incoming[sequence])
        sequence.advance(State.WAITING)
    return taken


def _consider(
    worker: WorkerState,
    sequence: Sequence,
    index: RemoteIndex,
    counts: LoadCounts,
    now: float,
) -> bool:
    """Order or join a load for `sequence` if it should wait for one; return whether it waits."""
    if not sequence.request.reads_cache or sequence.fairness.num_preemptions >= MAX_PREEMPTIONS:
        return False
    tokens, chain, loads = sequence.tokens, worker.chain_for(sequence), worker.loads
    hits = worker.cached_prefix(sequence)
    end = (len(tokens) - 1) // chain.block_size  # the last token is always computed
    if len(hits) == end:
        return False
    load = loads.find(chain.name(len(hits), tokens))
    if load is not None:
        sequence.remote.num_loads_left -= 1
        _wait_for(worker, load, sequence)
        return True
    room = _room(worker, hits)
    if loads.num_under_way(of_workers=False) >= MAX_LOADS or room < MIN_BLOCKS:
        return False
    names = (
        chain.name(at, tokens)
        for at in range(len(hits), longest_load(worker, len(hits), end, room))
    )
    runs = _whole_runs(worker, sequence, len(hits), index, index.longest_runs(names))
    if not runs:
        return False
    store, length, choice = choose_run(worker, runs, len(hits), now)
    counts.verdicts[choice.verdict] += 1
    sequence.remote.num_loads_left = 0
    if not choice.verdict.is_load:
        return False
    load = order_load(
        worker,
        sequence,
        hits,
        store=store,
        length=length,
        verdict=choice.verdict,
        timeout=choice.timeout,
        now=now,
    )
    _wait_for(worker, load, sequence)
    return True


def _whole_runs(
    worker: WorkerState,
    sequence: Sequence,
    start: int,
    index: RemoteIndex,
    runs: list[tuple[str, int]],
) -> list[tuple[str, int]]:
    """Return `runs` behind `start` blocks as far as their stores have the blocks of all groups."""
    groups, chain = worker.info.groups, worker.chain_for(sequence)
    if len(groups) == 1:
        return runs
    whole = []
    for store, length in runs:

        def has_block(group: int, at: int, store: str = store) -> bool:
            name = chain.name_in(group, at, sequence.tokens)
            return (
                worker.pool.cache.find(name) is not None if at < start else index.has(store, name)
            )

        end = groups.longest_end(start + length, chain.block_size, has_block)
        whole.append((store, end - start))
    return sorted(((store, num) for store, num in whole if num > 0), key=lambda run: -run[1])


def _room(worker: WorkerState, hits: CachedPrefix) -> int:
    """Return how many blocks a load may take."""
    num_left = worker.pool.num_blocks // POOL_SHARE - worker.loads.num_blocks
    return min(num_free_for_load(worker, hits), num_left)


def _wait_for(worker: WorkerState, load: KvLoad, sequence: Sequence) -> None:
    worker.waiting.remove(sequence)
    if sequence.state is not State.WAITING:
        sequence.advance(State.WAITING)  # preempted
    sequence.advance(State.WAITING_FOR_REMOTE_KV)
    worker.loads.wait(sequence, load)
    worker.aside.loading.push(sequence)


def _judge(worker: WorkerState, load: KvLoad, answer: LoadAnswer, now: float) -> None:
    """Record what an answer says about the link to its store."""
    link = worker.loads.link(load.order.store)
    link.measure(answer.num_bytes, load.num_bytes_ahead, answer.seconds, now)
    has_nothing = not answer.num_blocks and not answer.num_bytes
    if load.is_overdue:
        return  # it was counted when it was given up
    if answer.outcome is LoadOutcome.CANCELLED:
        link.breaker.forgo()
    elif answer.outcome is LoadOutcome.FAILED or (
        answer.outcome is LoadOutcome.LATE and has_nothing
    ):
        link.breaker.fail(now)
    else:
        link.breaker.succeed()


def _tiers_by_index(load: KvLoad, answer: LoadAnswer) -> Iterator[tuple[int, str]]:
    """Yield (index of block, tier), as if the blocks of one tier were consecutive."""
    tiers = (tier for tier, num_blocks in answer.tiers for _ in range(num_blocks))
    for (index, _), tier in zip(load.places, tiers, strict=False):
        yield index, tier
