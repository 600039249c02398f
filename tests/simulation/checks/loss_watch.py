"""What lost workers may cost, by books of its own on who ran when one was lost: nobody is given up
who got further in between, and nobody loses workers for ever."""

from dataclasses import dataclass

from simulation.checks.excuses import Excuses
from simulation.coverage import Coverage

from pagewire_scheduler.core.state.request import Request
from pagewire_scheduler.core.state.worker import WorkerState

GIVEN_UP_AFTER = 5
"""Workers that one request may lose, one after the other and at last alone."""


@dataclass(slots=True)
class _Losses:
    count: int = 0
    num_alone: int = 0
    progress: int = -1


class LossWatch:
    """Books on all requests of a world."""

    def __init__(self, coverage: Coverage, excuses: Excuses) -> None:
        self._coverage = coverage
        self._excuses = excuses
        self._losses: dict[tuple[bytes, int, int], _Losses] = {}

    def lost(self, worker: WorkerState, life: int) -> None:
        """`worker` is about to be detached from a scheduler, of whose lives this is one."""
        requests: dict[Request, None] = {}
        for step in worker.outstanding:
            if not step.is_void:
                live = (one for one in step.sequences if not one.state.is_finished)
                requests.update(dict.fromkeys(one.request for one in live))
        for request in requests:
            is_alone = len(requests) == 1
            # Nobody remembers what was lost before a scheduler was, or before a frontend that had
            # lost its stream submitted anew; no excuse forgets it.
            losses = self._count(request, life, request.submission.epoch, is_alone=is_alone)
            is_bounded = losses.num_alone <= GIVEN_UP_AFTER
            detail = f"{request.request_id.hex()} lost a worker again"
            self._coverage.invariants["bounded_losses"] += 1
            self._coverage.require("bounded_losses", is_bounded, detail)
            if self._count(request, 0, 0, is_alone=is_alone).count >= GIVEN_UP_AFTER:
                self._excuses.may_fail.add(request.request_id)

    def _count(self, request: Request, life: int, epoch: int, *, is_alone: bool) -> _Losses:
        key = (request.request_id, life, epoch)
        losses = self._losses.setdefault(key, _Losses())
        progress = sum(len(sequence.tokens) for sequence in request.sequences)
        if progress > losses.progress:
            losses.count = losses.num_alone = 0
            losses.progress = progress
        losses.count += 1
        losses.num_alone += is_alone
        return losses
