"""Sequences whose next blocks a KV store has: orders the loads, lets all who want the same wait for
one, and lets them go on with the answer.

A load takes only blocks that are free for anybody, and holds them and the cached ones before them.
It is for a sequence in the queue, before it has slot or blocks; with the answer the blocks become
cached ones like all others, and the sequence takes its turn and finds them.
"""

import math
from collections.abc import Iterator
from typing import Final

from pagewire_scheduler.core.block_load import LoadAnswer, LoadOrder, LoadOutcome
from pagewire_scheduler.core.block_table import BlockTable
from pagewire_scheduler.core.core_settings import LoadCounts
from pagewire_scheduler.core.load_choice import MIN_BLOCKS, Choice
from pagewire_scheduler.core.loads import Load
from pagewire_scheduler.core.preemption import MAX_PREEMPTIONS
from pagewire_scheduler.core.prefix_cache import find_prefix
from pagewire_scheduler.core.remote_index import RemoteIndex
from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.starting import MAX_SKIPS
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.store_choice import choose_run
from pagewire_scheduler.core.worker_state import WorkerState
from pagewire_shared.errors import WireError
from pagewire_shared.kv_tier import MAX_TIERS, is_tier_name, tier_label

MAX_LOADS: Final = 4
"""Loads of a worker that are not answered."""

POOL_SHARE: Final = 2
"""Loads hold at most one in so many blocks of a pool."""

MAX_LOOKED_AT: Final = 8
# Those in front of them that have had their chance are passed without a look.
_MAX_PASSED: Final = 32

OVERDUE_SECONDS: Final = 1.0
"""After its deadline an answer still has to come through the streams."""


def order_loads(worker: WorkerState, index: RemoteIndex, counts: LoadCounts, now: float) -> None:
    """Order loads for the first in the queue; before a plan is made, which may start them."""
    if worker.trials or _is_copy_under_way(worker):
        return
    at = num_looked_at = 0
    look = worker.loads.look(index.version, now)
    while num_looked_at < MAX_LOOKED_AT and at < _MAX_PASSED:
        sequence = worker.waiting.at(at)
        # Behind one that was passed often enough nobody takes what it waits for.
        if sequence is None or sequence.num_skipped >= MAX_SKIPS:
            return
        if sequence.num_loads_left and sequence.load_look != look:
            num_looked_at += 1
            sequence.load_look = look
            if _consider(worker, sequence, index, counts, now):
                num_looked_at -= 1
                look = worker.loads.look(index.version, now)
                continue
        at += 1


def check_answer(worker: WorkerState, answer: LoadAnswer) -> Load | None:
    """Return the load that `answer` is about, or None when there is none.

    Raises:
        WireError: It says what cannot be.
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
    worker: WorkerState, load: Load, answer: LoadAnswer, counts: LoadCounts, now: float
) -> None:
    """Take the answer to `load`: what came is cached, everything is given back, who waited waits
    for a slot as before."""
    pool, order = worker.pool, load.order
    for block, name in list(zip(order.blocks, order.names, strict=True))[: answer.num_blocks]:
        # A name that another block has by now: the worker would offer this one, too.
        if load.is_forgotten or not pool.publish(block, name):
            worker.forget_on_worker(block)
    waiting = load.waiting
    worker.loads.leave(load)
    _judge(worker, load, answer, now)
    block_size = worker.info.model.block_size
    counts.outcomes[answer.outcome] += 1
    for tier, num_blocks in answer.tiers:
        counts.blocks[tier_label(tier)] += num_blocks
        counts.tokens[tier_label(tier)] += num_blocks * block_size
    for sequence in waiting:
        if answer.num_blocks and not load.is_forgotten:
            sequence.loaded.update(_tiers_by_index(load.first, answer))
        else:
            sequence.num_loads_left = 0
        _wait_again(worker, sequence)


def give_up_overdue(worker: WorkerState, counts: LoadCounts, now: float) -> None:
    """Let nobody wait any longer for answers that should be there; their blocks stay reserved."""
    for load in worker.loads.under_way.values():
        if load.is_overdue or now < load.overdue_at:
            continue
        load.is_overdue = True
        counts.num_overdue += 1
        worker.loads.link(load.order.store).breaker.fail(now)
        for sequence in load.waiting:
            sequence.num_loads_left = 0
            _wait_again(worker, sequence)


def yield_blocks(worker: WorkerState) -> None:
    """Nobody can go on: stop loads that hold what may be missing, but not those of older ones.

    What a younger one has to wait for is over by the deadline of the load.
    """
    stuck = [*worker.running[:1], *worker.waiting]
    if not stuck:
        return
    oldest = min(sequence.key for sequence in stuck)
    for load in worker.loads.under_way.values():
        if all(sequence.key > oldest for sequence in load.waiting):
            worker.loads.cancel(load)


def take_loading(worker: WorkerState) -> list[Sequence]:
    """Take out, in order, those that wait for loads, back to WAITING."""
    taken = sorted(worker.loading, key=lambda sequence: sequence.key)
    for sequence in taken:
        worker.loading.remove(sequence)
        sequence.load = None
        sequence.advance(State.WAITING)
    return taken


def _is_copy_under_way(worker: WorkerState) -> bool:
    """Whether a step may still copy from a block that is free.

    Whoever writes such a block by a later step writes it after the copy; a load does not wait for
    steps.
    """
    ref_counts = worker.pool.ref_counts
    return any(
        not ref_counts[block] for step in worker.outstanding for block in step.plan.copy_sources
    )


def _consider(
    worker: WorkerState,
    sequence: Sequence,
    index: RemoteIndex,
    counts: LoadCounts,
    now: float,
) -> bool:
    """Let `sequence` wait for a load if it should; return whether it does."""
    if not sequence.request.reads_cache or sequence.num_preemptions >= MAX_PREEMPTIONS:
        return False
    tokens, chain, loads = sequence.tokens, worker.chain_for(sequence), worker.loads
    hits = find_prefix(worker.pool.cache, chain, tokens)
    end = (len(tokens) - 1) // chain.block_size  # the last token is always computed
    if len(hits) == end:
        return False
    load = loads.find(chain.name(len(hits), tokens))
    if load is not None:
        sequence.num_loads_left -= 1
        _wait_for(worker, load, sequence)
        return True
    room = _room(worker, hits)
    if len(loads.under_way) >= MAX_LOADS or room < MIN_BLOCKS:
        return False
    names = (chain.name(at, tokens) for at in range(len(hits), min(end, len(hits) + room)))
    runs = index.longest_runs(names)
    if not runs:
        return False
    store, length, choice = choose_run(worker, runs, now)
    counts.verdicts[choice.verdict] += 1
    sequence.num_loads_left = 0
    if not choice.verdict.is_load:
        return False
    load = _order(worker, sequence, hits, store, length, choice, now)
    _wait_for(worker, load, sequence)
    return True


def _room(worker: WorkerState, hits: list[int]) -> int:
    """Return how many blocks a load may take.

    As many as would be free for a sequence that starts with `hits`, but for one that must be left
    to start in: so also where a window lets a sequence be longer than the pool, all that was loaded
    is found again.
    """
    pool, num_held = worker.pool, worker.loads.num_blocks
    num_revived = sum(pool.ref_counts[block] == 0 for block in hits)
    num_free = pool.num_free - worker.reserve.num_blocks - num_revived - len(worker.running) - 1
    return min(num_free, pool.num_blocks // POOL_SHARE - num_held)


def _order(
    worker: WorkerState,
    sequence: Sequence,
    hits: list[int],
    store: str,
    length: int,
    choice: Choice,
    now: float,
) -> Load:
    chain, loads = worker.chain_for(sequence), worker.loads
    table = BlockTable(worker.pool)
    table.share(hits)  # before blocks are given out, which may be these
    order = LoadOrder(
        load_id=loads.next_id(),
        store=store,
        names=tuple(chain.name(len(hits) + at, sequence.tokens) for at in range(length)),
        blocks=tuple(table.grow(length)),
        timeout_ms=max(1, round(1000 * choice.timeout)),
    )
    link, num_bytes = loads.link(store), length * worker.info.bytes_per_block
    overdue_at = now + choice.timeout + OVERDUE_SECONDS
    load = Load(order, len(hits), table, num_bytes, link.num_bytes_under_way, overdue_at)
    link.begin(choice.verdict, num_bytes, now)
    loads.enter(load)
    return load


def _wait_for(worker: WorkerState, load: Load, sequence: Sequence) -> None:
    worker.waiting.remove(sequence)
    if sequence.state is not State.WAITING:
        sequence.advance(State.WAITING)  # preempted
    sequence.advance(State.WAITING_FOR_REMOTE_KV)
    sequence.load = load
    load.sequences.append(sequence)
    worker.loading.push(sequence)


def _wait_again(worker: WorkerState, sequence: Sequence) -> None:
    worker.loading.remove(sequence)
    sequence.load = sequence.load_look = None
    sequence.advance(State.WAITING)
    worker.waiting.push(sequence)


def _judge(worker: WorkerState, load: Load, answer: LoadAnswer, now: float) -> None:
    """Note what an answer says of its store's link."""
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


def _tiers_by_index(first: int, answer: LoadAnswer) -> Iterator[tuple[int, str]]:
    """Yield (index of block, tier), as if those of one tier came together."""
    tiers = (tier for tier, num_blocks in answer.tiers for _ in range(num_blocks))
    yield from enumerate(tiers, start=first)
