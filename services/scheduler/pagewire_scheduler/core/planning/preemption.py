"""Preemption: picks the running sequence that loses its slot and blocks when memory is short, and
releases them.

A sequence never preempts an older one, so the oldest always makes progress, and every sequence
becomes the oldest in time. No sequence is preempted more than MAX_PREEMPTIONS times: all blocks
that it may need are reserved before its next start.
"""

from collections.abc import Iterator

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.parallel.beam_group import restart_group
from pagewire_scheduler.core.queueing.adapter_gate import push_waiting
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState


class YoungestFirst:
    """The preemption policy of a cell: only younger sequences are preempted."""

    def victims(self, worker: WorkerState, sequence: Sequence) -> Iterator[Sequence]:
        """Yield whom `sequence` may evict: younger ones, the youngest first.

        Not the other beams of its own search, which cannot go on without each other.
        """
        is_beam, request = sequence.is_beam, sequence.request
        for running in reversed(worker.running):
            if running.key <= sequence.key:
                return
            if not running.placement.is_guaranteed and not (is_beam and running.request is request):
                yield running


def preempt(worker: WorkerState, victim: Sequence) -> None:
    """Take slot and blocks from `victim`, and count it."""
    members = victim.request.sequences if victim.is_beam else [victim]
    for member in members:
        member.fairness.num_preemptions += 1
    roll_back(worker, victim)


def roll_back(worker: WorkerState, sequence: Sequence) -> None:
    """Take slot and blocks from `sequence`.

    It is queued again when its last step has returned: tokens sampled there are valid, and what the
    next plan for it must compute depends on them. Blocks keep content and name until reused, so it
    usually comes back for free.
    """
    if sequence.is_beam:
        leader = restart_group(worker, sequence.request)
        leader.begin_stay(worker)
        push_waiting(worker, leader)
        return
    worker.leave_running(sequence)
    sequence.advance(State.PREEMPTED)
    sequence.remote.allow_loads()
    if sequence.num_outstanding:
        worker.aside.returning.add(sequence)
    else:
        push_waiting(worker, sequence)
