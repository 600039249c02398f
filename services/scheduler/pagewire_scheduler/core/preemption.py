"""Who gives way when blocks run out. Picks and evicts victims; plans nothing."""

from pagewire_scheduler.core.request import Sequence
from pagewire_scheduler.core.state import State
from pagewire_scheduler.core.worker_state import WorkerState


def find_victim(worker: WorkerState, sequence: Sequence) -> Sequence | None:
    """Return whom `sequence` may evict: the lowest priority, latest arrival, if that is not itself.

    Nobody evicts an older one, so the oldest running sequence always gets on, and with it all, in
    turn.
    """
    last = worker.running[-1]
    return last if last.key > sequence.key else None


def preempt(worker: WorkerState, victim: Sequence) -> None:
    """Take slot and blocks from `victim`.

    It is queued again when its last step has returned: tokens sampled there are valid, and what the
    next plan for it must compute depends on them. Blocks keep content and name until reused, so it
    usually comes back for free.
    """
    worker.leave_running(victim)
    victim.advance(State.PREEMPTED)
    if victim.num_outstanding == 0:
        worker.waiting.push(victim)
