"""Finishes sequences: finds the stop reason of the newest token, and releases slots, blocks and
hand-offs."""

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.parallel.beam_group import leave_group
from pagewire_scheduler.core.parallel.forks import follow, release_followers, unfollow
from pagewire_scheduler.core.queueing.enqueue import enqueue
from pagewire_scheduler.core.state.accounts import count_follower_gone
from pagewire_scheduler.core.state.request import Request, Sequence, SequenceQueue
from pagewire_scheduler.core.state.worker import WorkerState, worker_of
from pagewire_scheduler.core.transfers.handoffs import end_handoff
from pagewire_shared.errors import PagewireError


def stop_reason_of(sequence: Sequence) -> State | None:
    """Return the reason for which the newest token ends `sequence`, or None."""
    request, tokens = sequence.request, sequence.tokens
    position = len(tokens) - sequence.num_prompt - 1
    if position >= 0 and position >= request.submission.sampling.min_tokens:
        token = tokens[-1]
        if token in request.stop_ids:
            sequence.outcome.stop_token_id = token
            return State.FINISHED_STOPPED
        if token in request.eos_ids:
            return State.FINISHED_STOPPED
    if len(tokens) >= sequence.max_len:
        return State.FINISHED_LENGTH
    return None


def end_sequence(sequence: Sequence, state: State, error: PagewireError | None = None) -> None:
    """Finish `sequence` in any state, and release everything that it holds."""
    if error is not None:
        sequence.outcome.error = error
    worker, queue = worker_of(sequence), sequence.placement.queue
    if worker is not None:
        worker.touch()  # others may find room
    if sequence.state is State.RUNNING:
        assert worker is not None
        worker.leave_running(sequence)
    elif queue is not None:
        queue.remove(sequence)
    if worker is not None and sequence in worker.handoffs.incoming:
        end_handoff(worker.handoffs.incoming[sequence])
    sequence.advance(state)
    if sequence.branch.leader is not None:
        leader = unfollow(sequence)
        if leader.placement.queue is not None:
            leader.placement.queue.drop_follower()
            count_follower_gone(sequence)
    if sequence.is_beam:
        _end_beam(sequence, worker)
    elif sequence.branch.followers:
        _succeed(sequence, worker, queue)


def end_with_followers(
    sequence: Sequence, state: State, error: PagewireError | None = None
) -> list[Sequence]:
    """Finish `sequence` and its followers, for the same reason; return all of them."""
    ended = [*sequence.branch.followers, sequence]
    for one in ended:
        end_sequence(one, state, error)
    return ended


def end_request(request: Request, state: State, error: PagewireError | None) -> list[Sequence]:
    """Finish the live sequences of a request; return them."""
    ended = [sequence for sequence in request.sequences if sequence.is_live]
    for sequence in ended:
        end_sequence(sequence, state, error)
    return ended


def _end_beam(sequence: Sequence, worker: WorkerState | None) -> None:
    """End a search without a result: tokens of its beams are not output."""
    del sequence.tokens[sequence.num_prompt :]
    release_followers(sequence)
    if worker is not None:
        leave_group(worker, sequence.request)


def _succeed(leader: Sequence, worker: WorkerState | None, queue: SequenceQueue | None) -> None:
    """Make the next choice the leader, because the leader ended before its prompt was computed."""
    successor, *others = release_followers(leader)
    follow(successor, others)
    if worker is not None:
        enqueue(worker, successor)
    else:
        assert queue is not None
        queue.push(successor)
