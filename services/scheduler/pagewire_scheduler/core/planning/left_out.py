"""Sequences left out of sampling because the worker had no grammar bitmask for them in time.

Computed positions of a left-out sequence count. Only its last token is computed again for sampling,
and sampling is deterministic, so the result is the same. Steps planned on top of the missing token
leave the sequence out, too. Each retry comes after a growing pause, and a step holds few retries,
so that other sequences make progress.
"""

from collections.abc import Iterable
from typing import Final

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.queueing.adapter_gate import push_waiting
from pagewire_scheduler.core.state.outstanding_step import OutstandingStep
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.structured_outputs import FIELD
from pagewire_shared.steps.columns import Ints

MAX_PAUSE: Final = 32
"""Steps that one may be passed over after it was left out."""

LATE_COST: Final = 2
MAX_LATENESS: Final = 10
"""What being left out adds to the lateness of a sequence, of which each token takes 1 away, and the
most there is: one that is left out for every token pauses longest."""

MAX_RETRIES_PER_STEP: Final = 1
"""How many that were left out a step tries again beside others."""

MAX_RETRIES_ALONE: Final = 4
"""And how many without others."""


def may_be_left_out(sequence: Sequence) -> bool:
    """Whether a worker may sample nothing for it."""
    return sequence.request.grammar_key is not None


def leave_out(worker: WorkerState, sequence: Sequence) -> None:
    """The oldest step, which has just returned, sampled nothing for `sequence`."""
    for step in worker.outstanding:
        if sequence in step.sequences:
            step.left_out.add(sequence)
    if not sequence.is_live:
        return
    fairness = sequence.fairness
    sequence.num_in_flight = 0
    fairness.is_left_out = True
    sequence.lateness = min(sequence.lateness + LATE_COST, MAX_LATENESS)
    if sequence.state is State.RUNNING:
        sequence.num_computed = len(sequence.tokens) - 1
        sequence.fast_path_until = 0
    pause = min(2 ** (sequence.lateness // LATE_COST), MAX_PAUSE)
    fairness.pauses_until = worker.next_step_id + pause


def note_sampled(sequence: Sequence) -> None:
    """Shorten the next pause of a sequence that was left out before and now got a token."""
    sequence.lateness -= 1


def retries(running: Iterable[Sequence]) -> list[Sequence]:
    """Return the left-out sequences that have waited longest, for a step of their own."""
    waiting = [one for one in running if one.fairness.is_left_out]
    waiting.sort(key=lambda sequence: sequence.fairness.pauses_until)
    return waiting[:MAX_RETRIES_ALONE]


def share_slots(worker: WorkerState, step_id: int) -> None:
    """Give the slot of a pausing sequence to a waiting one; let it return when there is room.

    It is not queued meanwhile: it would be first in the queue, since it is older.
    """
    if worker.aside.resting and worker.slots.num_free > len(worker.waiting):
        rested = [one for one in worker.aside.resting if one.fairness.pauses_until <= step_id]
        for sequence in rested[: worker.slots.num_free - len(worker.waiting)]:
            _leave_rest(worker, sequence)
    first = worker.waiting.at(0)
    if worker.slots.num_free or first is None or first.lateness:
        return
    pausing = [one for one in worker.running if _is_pausing(one, step_id)]
    if pausing:
        sequence = max(pausing, key=lambda one: one.fairness.pauses_until)
        worker.leave_running(sequence)
        sequence.advance(State.PREEMPTED)
        sequence.remote.allow_loads()
        sequence.fairness.pauses_until = step_id + MAX_PAUSE
        worker.aside.resting.push(sequence)


def wake(worker: WorkerState) -> None:
    """Let all that rest wait for slots again."""
    for sequence in list(worker.aside.resting):
        _leave_rest(worker, sequence)


def _leave_rest(worker: WorkerState, sequence: Sequence) -> None:
    worker.aside.resting.remove(sequence)
    push_waiting(worker, sequence)


def _is_pausing(sequence: Sequence, step_id: int) -> bool:
    fairness, is_free = sequence.fairness, not sequence.placement.is_guaranteed
    is_paused = fairness.is_left_out and fairness.pauses_until > step_id
    return is_paused and is_free and not sequence.num_outstanding


def given_up_error(reason: str) -> InvalidRequestError:
    """Return the error of a request whose grammar the worker cannot follow any further."""
    return InvalidRequestError(f"{FIELD}: {reason}", field=FIELD, code="invalid_grammar")


def expected_counts(step: OutstandingStep, counts: Ints) -> bool:
    """Return whether `counts` match the sequences that `step` sampled."""
    sampled, granted = step.sampled, step.granted
    if len(counts) != len(sampled):
        return False
    for sequence, count, num_drafts in zip(sampled, counts, granted, strict=True):
        if sequence.is_pooling or sequence in step.left_out:
            is_right = count == 0
        else:
            is_right = 0 < count <= 1 + num_drafts or (count == 0 and may_be_left_out(sequence))
        if not is_right:
            return False
    return True
