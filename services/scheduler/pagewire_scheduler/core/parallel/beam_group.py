"""Runs a beam search over the sequences of a request: assigns a slot and a block table to each
beam.

One sequence computes the prompt; the others are forked from it when its candidates have come. Later
steps compute all beams and need the candidates of all of them. The search then chooses branches: a
parent's first child stays in its parent's sequence. Further children take the sequences of beams
that ended. The group runs, is preempted and restarts as a whole.
"""

from array import array

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.parallel.forks import follow, unfollow
from pagewire_scheduler.core.state.beam_search import Beam, BeamSearch, Branch
from pagewire_scheduler.core.state.request import BeamGroup, BeamMoves, Request, Sequence
from pagewire_scheduler.core.state.request_creation import create_sequences
from pagewire_scheduler.core.state.reservations import update_reservation
from pagewire_scheduler.core.state.worker import WorkerState


def start_group(leader: Sequence) -> None:
    """Begin the search: `leader`, which starts now, computes the prompt."""
    request = leader.request
    search = _search(request, max_tokens=leader.max_len - leader.num_prompt)
    request.beams = BeamGroup(search, [leader], [0.0])


def advance_group(worker: WorkerState, request: Request) -> list[Sequence]:
    """Take the next step of a search that is ready; return the sequences that ended, if it did."""
    group = request.beams
    assert group is not None
    beams = [
        Beam(sequence.emitted_from(0), score, sequence.branch.candidates or ())
        for sequence, score in zip(group.live, group.scores, strict=True)
    ]
    branches = group.search.step(beams)
    if branches:
        _branch(worker, request, group, branches)
        return []
    return _finish(worker, request, group)


def take_moves(request: Request) -> BeamMoves:
    """Return the moves of the beams of `request` for the plan being sent, once."""
    group = request.beams
    assert group is not None
    assert group.moves is not None, "a group branched and has no moves"
    moves, group.moves = group.moves, None
    return moves


def restart_group(worker: WorkerState, request: Request) -> Sequence:
    """Take all slots and blocks from a group; return its new first sequence, which is to be queued.

    Nothing was emitted, so the search starts from the prompt. Results of steps under way belong to
    the old sequences and are dropped.
    """
    leave_group(worker, request)
    old = request.sequences
    request.sequences = create_sequences(request, old[0].fairness.num_preemptions)
    for before in old:
        if not before.state.is_finished:
            if before.state is State.RUNNING:
                worker.leave_running(before)
            before.advance(State.FINISHED_ABORTED)
        before.branch.leader = None
    leader, *followers = request.sequences
    follow(leader, followers)
    return leader


def leave_group(worker: WorkerState, request: Request) -> None:
    """Forget the search of a request that stops running."""
    request.beams = None
    worker.branched.pop(request, None)


def _search(request: Request, max_tokens: int) -> BeamSearch:
    params = request.submission.beam_search
    assert params is not None
    return BeamSearch(
        width=len(request.submission.emitted),
        max_tokens=max_tokens,
        params=params,
        end_ids=request.stop_ids | request.eos_ids,
        min_tokens=request.submission.sampling.min_tokens,
    )


def _branch(
    worker: WorkerState, request: Request, group: BeamGroup, branches: list[Branch]
) -> None:
    parents = [group.live[branch.parent] for branch in branches]
    vehicles = _vehicles(worker, request, parents)
    moves = BeamMoves()
    live: list[Sequence] = []
    for parent in parents:
        if parent not in live:
            live.append(parent)
            continue
        child = vehicles.pop()
        _fork_into(worker, parent, child)
        assert child.slot is not None
        assert parent.slot is not None
        moves.forks.append((child.slot, parent.slot, child.choice))
        live.append(child)
    # Only now: children are copies of their parents as they were.
    for sequence, branch in zip(live, branches, strict=True):
        sequence.tokens.append(branch.token)
        sequence.branch.candidates = None
        assert sequence.slot is not None
        moves.appended.append((sequence.slot, branch.token))
    group.live, group.scores = live, [branch.score for branch in branches]
    group.moves = moves
    worker.branched[request] = None
    update_reservation(worker, live[0])


def _vehicles(worker: WorkerState, request: Request, parents: list[Sequence]) -> list[Sequence]:
    """Return the sequences whose beams ended, after their blocks are released."""
    probe_blocks = set(parents)
    free = [sequence for sequence in request.sequences if sequence not in probe_blocks]
    for sequence in free:
        if sequence.state is State.RUNNING:
            # No step names it: the search waits for all answers before it goes on.
            assert not sequence.num_outstanding
            assert sequence.table is not None
            sequence.table.release()
    free.reverse()  # taken from the end: the lowest choice first
    return free


def _fork_into(worker: WorkerState, parent: Sequence, child: Sequence) -> None:
    if child.state is not State.RUNNING:
        worker.slots.reserve(unfollow(child), -1)
        child.begin_stay(worker)
        child.advance(State.RUNNING)
        worker.enter_running(child)
    child.fork_from(parent)


def _finish(worker: WorkerState, request: Request, group: BeamGroup) -> list[Sequence]:
    """End all sequences with the found outputs, the best in choice 0."""
    best = group.live[0]
    leave_group(worker, request)
    hypotheses = group.search.finished
    for sequence, hypothesis in zip(request.sequences, hypotheses, strict=True):
        if sequence.state is State.RUNNING:
            worker.leave_running(sequence)
        end = State.FINISHED_STOPPED if hypothesis.is_stopped else State.FINISHED_LENGTH
        sequence.advance(end)
        sequence.tokens[sequence.num_prompt :] = array("I", hypothesis.tokens)
        last = hypothesis.tokens[-1]
        sequence.outcome.stop_token_id = last if last in request.stop_ids else None
        sequence.branch.leader, sequence.branch.followers = None, []
        sequence.copy_times(best)
    return list(request.sequences)
