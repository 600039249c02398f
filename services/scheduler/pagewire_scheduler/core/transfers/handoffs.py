"""Begins and ends hand-offs: the prefill on the source, the wait on the receiver, and the lease on
the computed blocks. `core.transfers.pulls` orders the loads.

The source computes the full blocks of a prompt for a sequence that will run on the receiver. The
lease keeps these blocks from being overwritten until the receiver has them. Any failure ends the
hand-off, and the receiver computes the missing blocks.
"""

from pagewire_scheduler.core.blocks.block_table import BlockTable
from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.queueing.adapter_gate import push_waiting
from pagewire_scheduler.core.queueing.enqueue import requeue
from pagewire_scheduler.core.state.request import Placement, Sequence
from pagewire_scheduler.core.state.worker import Handoff, Phase, WorkerState


def begin_handoff(
    source: WorkerState, receiver: WorkerState, sequence: Sequence, timeout: float, now: float
) -> Handoff:
    """Let `source` compute the full blocks of a WAITING sequence, which waits on `receiver`."""
    tokens, chain = sequence.tokens, source.chain_for(sequence)
    num_blocks = (len(tokens) - 1) // chain.block_size  # the last token is computed by the receiver
    handoff = Handoff(
        source=source,
        receiver=receiver,
        sequence=sequence,
        num_blocks=num_blocks,
        deadline=now + timeout,
        begun_at=now,
    )
    handoff.num_cached = len(source.cached_prefix(sequence))
    _enter(handoff)
    if handoff.num_cached < num_blocks:
        _queue_prefill(handoff, num_blocks * chain.block_size)
    else:
        _hold(handoff, now)
    return handoff


def begin_move(
    source: WorkerState, receiver: WorkerState, sequence: Sequence, timeout: float, now: float
) -> Handoff:
    """Let a WAITING sequence that ran on `source` take its cached blocks along to `receiver`."""
    hits = source.cached_prefix(sequence)
    handoff = Handoff(
        source=source,
        receiver=receiver,
        sequence=sequence,
        num_blocks=len(hits),
        deadline=now + timeout,
        begun_at=now,
    )
    handoff.num_cached = len(hits)
    _enter(handoff)
    _hold(handoff, now)
    return handoff


def note_started(source: WorkerState, now: float) -> list[Handoff]:
    """Advance the hand-offs of prefills that started with the newest plan; return the hand-offs."""
    started = []
    for handoff in source.handoffs.outgoing:
        prefill = handoff.prefill
        is_queued = handoff.phase is Phase.QUEUED
        if is_queued and prefill is not None and prefill.state is State.RUNNING:
            handoff.advance(Phase.COMPUTING)
            handoff.sequence.times.note_prefill_begun(prefill.times, now)
            started.append(handoff)
    return started


def complete_prefill(source: WorkerState, prefill: Sequence, now: float) -> None:
    """Keep the blocks that `prefill` has computed for the receiver."""
    handoff = source.handoffs.prefills[prefill]
    _hold(handoff, now)
    _end_prefill(source, prefill, State.FINISHED_STOPPED)
    num_held = 0 if handoff.lease is None else len(handoff.lease.blocks)
    if num_held < handoff.num_blocks and handoff.load is not None:
        # Some was evicted or forgotten meanwhile, so the receiver would wait in vain.
        handoff.receiver.loads.cancel(handoff.load)


def end_handoff(handoff: Handoff) -> None:
    """End a hand-off that is complete or no longer waited for: release its lease and prefill."""
    if handoff.phase is Phase.ENDED:
        return
    handoff.advance(Phase.ENDED)
    if handoff.prefill is not None and handoff.prefill.is_live:
        _end_prefill(handoff.source, handoff.prefill, State.FINISHED_ABORTED)
    if handoff.lease is not None:
        handoff.lease.release()
        handoff.lease = None
    handoff.source.touch()  # who waits there may find room now
    handoff.receiver.touch()
    del handoff.source.handoffs.outgoing[handoff]
    del handoff.receiver.handoffs.incoming[handoff.sequence]


def give_up_source(handoff: Handoff, now: float) -> None:
    """Stop waiting for a source that sends nothing more; the sequence uses the received blocks."""
    sequence, load = handoff.sequence, handoff.load
    if load is not None and sequence.remote.load is load:
        end_handoff(handoff)
        handoff.receiver.loads.cancel(load)
    else:
        go_on(handoff.receiver, sequence, now)


def go_on(receiver: WorkerState, sequence: Sequence, now: float) -> None:
    """Requeue a sequence that waited for blocks; for a probe, end it."""
    receiver.aside.loading.remove(sequence)
    receiver.touch()
    sequence.remote.load = sequence.remote.load_look = None
    sequence.advance(State.WAITING)
    if sequence.placement.probe is not None:
        sequence.placement.probe.end(sequence, now)
    if sequence in receiver.handoffs.incoming:
        end_handoff(receiver.handoffs.incoming[sequence])
    if sequence.is_live:
        requeue(receiver, sequence)


def end_late_handoffs(receiver: WorkerState, now: float) -> None:
    """End hand-offs past their deadline; an order that was sent has a deadline of its own."""
    for handoff in [one for one in receiver.handoffs.incoming.values() if now >= one.deadline]:
        if handoff.load is None:
            give_up_source(handoff, now)


def yield_leases(source: WorkerState, now: float) -> None:
    """Release leases when no sequence can go on: those of younger sequences without a pull.

    Leases of older sequences are released by their deadlines.
    """
    stuck = [*source.running[:1], *source.waiting]
    if not stuck:
        return
    oldest = min(sequence.key for sequence in stuck)
    for handoff in list(source.handoffs.outgoing):
        if handoff.load is None and handoff.lease is not None and handoff.sequence.key > oldest:
            give_up_source(handoff, now)


def _enter(handoff: Handoff) -> None:
    sequence, receiver = handoff.sequence, handoff.receiver
    assert sequence not in receiver.handoffs.incoming, "a sequence waits for two hand-offs"
    handoff.source.handoffs.outgoing[handoff] = None
    receiver.handoffs.incoming[sequence] = handoff
    handoff.source.touch()
    receiver.touch()
    sequence.begin_stay(receiver)
    key, grammar = sequence.request.grammar_key, sequence.request.grammar
    if key is not None and grammar is not None and not receiver.grammars.is_ready(key):
        receiver.grammars.request_compile(key, grammar)  # it is compiled meanwhile
    sequence.advance(State.WAITING_FOR_REMOTE_KV)
    receiver.aside.loading.push(sequence)


def _queue_prefill(handoff: Handoff, num_tokens: int) -> None:
    sequence, source = handoff.sequence, handoff.source
    rank, arrival, choice = sequence.key
    prefill = Sequence(
        request=sequence.request,
        choice=sequence.choice,
        # One more than is computed, so that all the blocks may be found in the cache.
        tokens=sequence.tokens[: num_tokens + 1],
        num_prompt=num_tokens,
        # Apart from those of the choices, which may come to run there, too.
        key=(rank, arrival, -1 - choice),
        max_len=num_tokens + 1,
        is_prefill=True,
        placement=Placement(
            worker=source,
            chain=sequence.placement.chain,
            num_expected=num_tokens - handoff.num_cached * source.info.model.block_size,
        ),
    )
    handoff.prefill = prefill
    source.handoffs.prefills[prefill] = handoff
    push_waiting(source, prefill)


def _hold(handoff: Handoff, now: float) -> None:
    source, sequence = handoff.source, handoff.sequence
    handoff.lease = BlockTable(source.pool)
    handoff.lease.share(source.cached_prefix(sequence))
    handoff.computed_at = now
    handoff.receiver.touch()  # it may order them now
    handoff.advance(Phase.HELD)
    sequence.times.note_begun(now)


def _end_prefill(source: WorkerState, prefill: Sequence, state: State) -> None:
    del source.handoffs.prefills[prefill]
    if prefill.state is State.RUNNING:
        source.leave_running(prefill)
    elif prefill.placement.queue is not None:
        prefill.placement.queue.remove(prefill)
    prefill.advance(state)
