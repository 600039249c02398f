"""Loads blocks from KV stores for waiting sequences: orders loads, lets several sequences wait for
one load, and requeues them with the answer.

A load takes free blocks that are not reserved. It holds them, and the cached blocks in front of
them, until the answer. Loads are for queued sequences, which have no slot and no blocks yet. With
the answer the blocks enter the prefix cache, where the sequence finds them when it starts.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pagewire_scheduler.core.blocks.prefix_cache import CachedPrefix, NameChain
from pagewire_scheduler.core.blocks.stripes import stripe_of
from pagewire_scheduler.core.costs.load_cost import MIN_BLOCKS, LoadDecision, StoreLink
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
from pagewire_scheduler.core.transfers.remote_index import BlockIndex, RemoteIndex
from pagewire_scheduler.core.transfers.spread import (
    choose_spread,
    copies_of,
    count_uncopied,
    find_spread,
    is_spread,
)
from pagewire_scheduler.core.transfers.traced_loads import note_load
from pagewire_shared.errors import WireError
from pagewire_shared.identity.ids import BlockName
from pagewire_shared.kv.copies import BlockCopies
from pagewire_shared.kv.load import LoadAnswer, LoadOutcome
from pagewire_shared.kv.tier import MAX_TIERS, is_tier_name, tier_label

MAX_LOADS: Final = 4
"""Loads of a worker from stores that are not answered."""

POOL_SHARE: Final = 2
"""Loads hold at most one in so many blocks of a pool."""

MAX_LOOKED_AT: Final = 8
# Skips at most this many sequences that were already examined.
_MAX_PASSED: Final = 32


def order_loads(worker: WorkerState, index: BlockIndex, counts: LoadCounts, now: float) -> None:
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
    _check_parts(load, answer)
    return load


def _check_parts(load: KvLoad, answer: LoadAnswer) -> None:
    """Raise WireError where an answer says of stores what cannot be."""
    stores = () if load.order.copies is None else load.order.copies.stores
    found, num_blocks = {part.store for part in answer.parts}, len(load.order.blocks)
    is_known = found <= set(range(len(stores))) and len(found) == len(answer.parts)
    is_sane = all(
        part.num_bytes >= 0
        and 0 <= part.seconds < math.inf
        and all(0 <= at < num_blocks for at in part.missing)
        for part in answer.parts
    )
    if not is_known or not is_sane:
        raise WireError(f"the answer to load {answer.load_id} has parts that were not ordered")


def finish_load(
    worker: WorkerState, load: KvLoad, answer: LoadAnswer, counts: CoreCounts, now: float
) -> None:
    """Take the answer to `load`: cache its blocks, release them, and requeue those that waited."""
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
        exposed = now - load.ordered_at
        note_load(worker.info.worker_id, sequence, load, answer, exposed=exposed, now=now)
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
        for store in load.shares:
            worker.loads.link(store).breaker.fail(now)
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
    index: BlockIndex,
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
    plan = _choose(worker, sequence, len(hits), index, names, now)
    if plan is None:
        return False
    counts.verdicts[plan.choice.verdict] += 1
    sequence.remote.num_loads_left = 0
    if not plan.choice.verdict.is_load:
        return False
    find_copies = None
    if plan.stores and isinstance(index, RemoteIndex):
        find_copies = partial(_copies, sequence, chain, index, plan.stores)
    load = order_load(
        worker,
        sequence,
        hits,
        store=plan.store,
        length=plan.length,
        verdict=plan.choice.verdict,
        timeout=plan.choice.timeout,
        now=now,
        find_copies=find_copies,
    )
    counts.num_uncopied += _num_uncopied(load, index)
    _wait_for(worker, load, sequence)
    return True


def _num_uncopied(load: KvLoad, index: BlockIndex) -> int:
    copies = load.order.copies
    if copies is None or not copies.stripes or not isinstance(index, RemoteIndex):
        return 0
    return count_uncopied(copies, index.num_wanted)


@dataclass(frozen=True, slots=True)
class _LoadPlan:
    """A decision about the blocks behind a prefix; `stores` are several that may have them."""

    store: str
    length: int
    choice: LoadDecision
    stores: tuple[str, ...] = ()


def _choose(
    worker: WorkerState,
    sequence: Sequence,
    start: int,
    index: BlockIndex,
    names: Iterator[BlockName],
    now: float,
) -> _LoadPlan | None:
    """Decide about a load behind `start` blocks; None if no store has the next one."""
    if not isinstance(index, RemoteIndex) or not is_spread(worker, index):
        runs = _whole_runs(worker, sequence, start, index, index.longest_runs(names))
        return _LoadPlan(*choose_run(worker, runs, start, now)) if runs else None
    spread = find_spread(worker, index, names, now)
    if spread is None:
        return None
    length = len(spread.holders)
    if length:

        def is_there(name: BlockName) -> bool:
            return any(index.has(store, name) for store in spread.stores)

        length = _whole_length(worker, sequence, start, length, is_there)
        if not length:
            return None
    choice = choose_spread(worker, spread, start, length, now)
    return _LoadPlan("", length, choice, spread.stores)


def _copies(
    sequence: Sequence,
    chain: NameChain,
    index: RemoteIndex,
    stores: tuple[str, ...],
    names: Iterable[BlockName],
    places: Iterable[int],
) -> BlockCopies:
    """Return which stores have the blocks of a load, and their stripes where copies are lacking."""
    copies = copies_of(index, stores, tuple(names), sequence.request.submission.tenant)
    if not count_uncopied(copies, index.num_wanted):
        return replace(copies, tenant="")
    tokens, num_prompt = sequence.tokens, sequence.num_prompt
    stripes = tuple(stripe_of(chain, at, tokens, num_prompt) for at in places)
    return replace(copies, stripes=stripes)


def _whole_length(
    worker: WorkerState,
    sequence: Sequence,
    start: int,
    length: int,
    is_there: Callable[[BlockName], bool],
) -> int:
    """Return how many of `length` blocks behind `start` are of use: all groups have their part."""
    groups, chain = worker.info.groups, worker.chain_for(sequence)
    if len(groups) == 1:
        return length

    def has_block(group: int, at: int) -> bool:
        name = chain.name_in(group, at, sequence.tokens)
        return worker.pool.cache.find(name) is not None if at < start else is_there(name)

    return groups.longest_end(start + length, chain.block_size, has_block) - start


def _whole_runs(
    worker: WorkerState,
    sequence: Sequence,
    start: int,
    index: BlockIndex,
    runs: list[tuple[str, int]],
) -> list[tuple[str, int]]:
    """Return `runs` behind `start` blocks as far as their stores have the blocks of all groups."""
    if len(worker.info.groups) == 1:
        return runs
    whole = [
        (store, _whole_length(worker, sequence, start, length, partial(index.has, store)))
        for store, length in runs
    ]
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
    """Record what an answer says about the links to its stores."""
    copies = load.order.copies
    if copies is None:
        link = worker.loads.link(load.order.store)
        link.measure(answer.num_bytes, load.num_bytes_ahead, answer.seconds, now)
        has_nothing = not answer.num_blocks and not answer.num_bytes
        if not load.is_overdue:  # else it was counted when it was given up
            _note_outcome(link, answer.outcome, now, has_nothing=has_nothing)
        return
    parts = {copies.stores[part.store]: part for part in answer.parts}
    for store in load.shares.keys() | parts.keys():
        link, part = worker.loads.link(store), parts.get(store)
        if part is None:
            link.breaker.forgo()
            continue
        _, num_bytes_ahead = load.shares.get(store, (0, 0))
        link.measure(part.num_bytes, num_bytes_ahead, part.seconds, now)
        if not load.is_overdue:
            _note_outcome(link, part.outcome, now, has_nothing=not part.num_bytes)


def _note_outcome(link: StoreLink, outcome: LoadOutcome, now: float, *, has_nothing: bool) -> None:
    if outcome is LoadOutcome.CANCELLED:
        link.breaker.forgo()
    elif outcome is LoadOutcome.FAILED or (outcome is LoadOutcome.LATE and has_nothing):
        link.breaker.fail(now)
    else:
        link.breaker.succeed()


def _tiers_by_index(load: KvLoad, answer: LoadAnswer) -> Iterator[tuple[int, str]]:
    """Yield (index of block, tier), as if the blocks of one tier were consecutive."""
    tiers = (tier for tier, num_blocks in answer.tiers for _ in range(num_blocks))
    for (index, _), tier in zip(load.places, tiers, strict=False):
        yield index, tier
