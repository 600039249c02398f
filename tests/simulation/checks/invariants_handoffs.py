"""What must hold of hand-offs between workers after every event."""

from simulation.coverage import Coverage, Violation
from simulation.processes.cell import Cell

from pagewire_scheduler.core.data.state_machine import State
from pagewire_scheduler.core.state.worker import Handoff, Phase, WorkerState


def handoffs_end(worker: WorkerState, cell: Cell, coverage: Coverage) -> None:
    """Every hand-off has somebody who waits for it, and not for ever; a source computes and keeps
    nothing else for others."""
    name = "handoffs_end"
    for handoff in worker.handoffs.outgoing:
        problem = _problem(handoff, worker, cell)
        if problem is not None:
            raise Violation(name, f"{handoff.sequence.key}: {problem}")
        coverage.invariants[name] += 1
        coverage.facts[f"hand-offs seen {handoff.phase.value}"] += 1
    for handoff in worker.handoffs.incoming.values():
        if handoff not in handoff.source.handoffs.outgoing:
            raise Violation(name, f"{handoff.sequence.key} waits for what nobody gives")
    queues = (worker.running, worker.waiting, worker.aside.loading, worker.aside.compiling)
    for sequence in (one for queue in queues for one in queue if one.is_prefill):
        if worker.handoffs.prefills.get(sequence) not in worker.handoffs.outgoing:
            raise Violation(name, f"the prefill {sequence.key} is for nobody")


def _problem(handoff: Handoff, worker: WorkerState, cell: Cell) -> str | None:
    sequence, receiver, prefill = handoff.sequence, handoff.receiver, handoff.prefill
    if handoff.source is not worker or handoff.phase is Phase.ENDED:
        return "it is over, or of another source"
    if cell.core.workers.get(receiver.info.worker_id) is not receiver:
        return "its receiver is gone"
    if receiver.handoffs.incoming.get(sequence) is not handoff:
        return "nobody waits for it"
    is_waiting = sequence.placement.queue is receiver.aside.loading
    if not is_waiting or sequence.state is not State.WAITING_FOR_REMOTE_KV:
        return f"who should wait is {sequence.state.value}"
    if (handoff.lease is not None) != (handoff.phase is Phase.HELD):
        return f"it is {handoff.phase.value}, with{'out' * (handoff.lease is None)} a lease"
    is_computing = prefill is not None and prefill.is_live
    if is_computing != (handoff.phase in (Phase.QUEUED, Phase.COMPUTING)):
        return f"it is {handoff.phase.value}, and its prefill is not"
    if handoff.load is None and cell.last_tick >= handoff.deadline:
        return "its deadline has passed"
    return None
