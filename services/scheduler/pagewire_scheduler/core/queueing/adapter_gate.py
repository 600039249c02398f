"""Lets a sequence into the waiting queue of its worker, or sets it aside until its adapter is
loaded.

Every sequence in the queue can start as soon as there are slots and blocks: so no sequence that
lacks an adapter delays others.
"""

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.state.request import Sequence
from pagewire_scheduler.core.state.worker import WorkerState


def push_waiting(worker: WorkerState, sequence: Sequence) -> None:
    """Queue a WAITING or PREEMPTED sequence for slots and blocks, or for its adapter."""
    if worker.adapters.is_ready(sequence.request.submission.adapter):
        worker.waiting.push(sequence)
        return
    if sequence.state is not State.WAITING:
        sequence.advance(State.WAITING)
    sequence.advance(State.WAITING_FOR_ADAPTER)
    worker.aside.adapting.push(sequence)
    worker.touch()
