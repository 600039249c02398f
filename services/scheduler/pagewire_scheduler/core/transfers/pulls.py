"""Pulls: KV loads from another worker. They are ordered as soon as that worker computes the blocks,
and their answers end hand-offs."""

from typing import Final

from pagewire_scheduler.core.costs.load_cost import LoadReason
from pagewire_scheduler.core.data.settings import HandoffCounts
from pagewire_scheduler.core.state.kv_load import KvLoad
from pagewire_scheduler.core.state.pairs import MIN_PROBE_SECONDS, PairFacts, source_key
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import Handoff, WorkerState
from pagewire_scheduler.core.transfers.handoffs import give_up_source, go_on
from pagewire_scheduler.core.transfers.orders import (
    is_copy_under_way,
    longest_load,
    num_free_for_load,
    order_load,
)
from pagewire_scheduler.core.transfers.traced_loads import note_load
from pagewire_shared.kv.load import LoadAnswer, LoadOutcome, WorkerSource

MAX_PULLS: Final = 12
"""Loads from other workers that are not answered."""


def order_pulls(receiver: WorkerState, now: float) -> None:
    """Order the blocks that sources compute for waiting sequences, the oldest sequence first.

    Sequences younger than one that lacks room get nothing.
    """
    if not receiver.handoffs.incoming or is_copy_under_way(receiver):
        return
    head = receiver.waiting.at(0) if receiver.is_blocked else None
    incoming = receiver.handoffs.incoming.values()
    due = [one for one in incoming if one.load is None and one.is_pullable]
    for handoff in sorted(due, key=lambda one: one.sequence.key):
        is_full = receiver.loads.num_under_way(of_workers=True) >= MAX_PULLS
        if is_full or (head is not None and head.key < handoff.sequence.key):
            return
        _order_pull(handoff, now)


def finish_pull(
    receiver: WorkerState,
    load: KvLoad,
    answer: LoadAnswer,
    waiting: list[Sequence],
    counts: HandoffCounts,
    now: float,
) -> None:
    """Take the answer to a load from another worker, whose blocks are published already; requeue
    the sequences `waiting` for it.
    """
    handoff = receiver.handoffs.pulls.pop(load)
    exposed = 0.0
    if handoff.computed_at is not None:
        exposed = now - max(handoff.computed_at, load.ordered_at)
    _judge(receiver, handoff, load, answer, exposed, now)
    counts.outcomes[answer.outcome] += 1
    counts.num_blocks += answer.num_blocks
    for sequence in waiting:
        note_load(receiver.info.worker_id, sequence, load, answer, exposed=exposed, now=now)
        if answer.num_blocks and not load.is_forgotten:
            sequence.remote.num_loads_left = 0
            if sequence is handoff.sequence and handoff.prefill is not None:
                size = receiver.info.model.block_size
                first = max(load.first, handoff.num_cached)
                sequence.remote.handed_off = (first * size, load.end(answer.num_blocks) * size)
                sequence.times.is_handed_off = True
        go_on(receiver, sequence, now)


def pair_of(receiver: WorkerState, source: WorkerState) -> PairFacts:
    """Return the measurements of the way from `source` to `receiver`."""
    return receiver.handoffs.pairs.setdefault(source.info.worker_id, PairFacts())


def forget_source(receiver: WorkerState, source: WorkerState) -> None:
    """Forget all measurements of a worker that is gone."""
    receiver.handoffs.pairs.pop(source.info.worker_id, None)
    receiver.loads.forget_link(source_key(source.info.worker_id))


def _order_pull(handoff: Handoff, now: float) -> None:
    receiver, sequence, source = handoff.receiver, handoff.sequence, handoff.source.info
    chain = receiver.chain_for(sequence)
    hits = receiver.cached_prefix(sequence)
    num_wanted, store = handoff.num_blocks - len(hits), source_key(source.worker_id)
    allows_attempt = receiver.loads.link(store).breaker.allows_attempt(now)
    if num_wanted <= 0 or now >= handoff.deadline or not allows_attempt:
        give_up_source(handoff, now)  # it is all there, or will not come
        return
    if receiver.loads.find(chain.name(len(hits), sequence.tokens)) is not None:
        return  # another one brings the beginning; what is left is ordered after that
    num_free = num_free_for_load(receiver, hits)
    length = longest_load(receiver, len(hits), handoff.num_blocks, num_free) - len(hits)
    # The source keeps of a window what the whole prefix needs.
    if length < (num_wanted if receiver.info.groups.has_windows else 1):
        return
    load = order_load(
        receiver,
        sequence,
        hits,
        store=store,
        length=length,
        verdict=LoadReason.FORCED,
        timeout=handoff.deadline - now,
        now=now,
        source=WorkerSource(source.kv_endpoint, source.worker_id),
    )
    receiver.handoffs.pulls[load] = handoff
    handoff.load = load
    receiver.loads.wait(sequence, load)


def _judge(
    receiver: WorkerState,
    handoff: Handoff,
    load: KvLoad,
    answer: LoadAnswer,
    exposed: float,
    now: float,
) -> None:
    """Record what an answer says about the way from its source."""
    pair, link = pair_of(receiver, handoff.source), receiver.loads.link(load.order.store)
    pair.transport = answer.transport or pair.transport
    if answer.transfer_seconds > 0 and answer.num_bytes:
        pair.bytes_per_second = answer.num_bytes / answer.transfer_seconds
    if answer.num_blocks:
        pair.num_transfers += 1
        if handoff.computed_at is not None and answer.num_bytes:
            pair.exposed.note(answer.num_bytes, exposed)
            pair.next_probe = now + MIN_PROBE_SECONDS
    elif answer.outcome is not LoadOutcome.CANCELLED:
        pair.num_failures += 1
    if handoff.prefill is None:
        # All was there: the time is that of moving it.
        link.measure(answer.num_bytes, load.num_bytes_ahead, answer.seconds, now)
    if load.is_overdue:
        return  # it was counted when it was given up
    if answer.outcome is LoadOutcome.CANCELLED:
        link.breaker.forgo()
    elif not answer.num_bytes and not answer.num_blocks:
        link.breaker.fail(now)
    else:
        link.breaker.succeed()
