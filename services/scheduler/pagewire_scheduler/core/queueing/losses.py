"""Crash history: counts the workers lost while a request was under way without progress in between.

Any worker may be killed, and its requests run elsewhere. But a request that crashes every worker it
runs on would end them all, and no other request would make progress. After two lost workers a
request is a suspect and runs apart from all others. Suspects run in groups of an eighth of the
requests that ran together at the loss. A group that makes progress is cleared; a group that loses
its worker again is cut into eighths. A request fails when it is alone on a lost worker that is at
least its fifth.
"""

from typing import Final

from pagewire_scheduler.core.state.fault_isolation import Unit, unit_of
from pagewire_scheduler.core.state.request import Request
from pagewire_scheduler.core.state.worker import WorkerState
from pagewire_shared.errors import InternalError

MAX_LOSSES_TOGETHER: Final = 2
"""Workers lost after which a request is run with other suspects only, until it gets further."""

NUM_GROUPS: Final = 8
"""Groups that suspects of one loss are tried in: so many trials clear them when it was none of
them, and a culprit among up to 512 is alone on the fifth worker that it loses."""

MAX_LOSSES: Final = 5
"""Workers lost after which a request that ran alone on the last of them is given up."""


def note_worker_loss(worker: WorkerState) -> set[Unit]:
    """Count a lost worker against the requests that ran on it; return those that fail for it."""
    steps = [step for step in worker.outstanding if not step.is_void]
    under_way = [sequence for step in steps for sequence in step.sequences if sequence.is_live]
    requests = dict.fromkeys(sequence.request for sequence in under_way)
    for request in requests:
        _count(request)
        request.num_together = -(-len(requests) // NUM_GROUPS)
    if len(requests) != 1:
        return set()
    (alone,) = requests
    return set(map(unit_of, under_way)) if alone.num_losses >= MAX_LOSSES else set()


def error_of_losses(request: Request) -> InternalError:
    """Return the error of a request that was given up."""
    return InternalError(
        f"{request.num_losses} workers were lost, one after the other, while they ran this request"
    )


def is_suspect(request: Request) -> bool:
    """Return whether the request runs with other suspects only."""
    return request.num_losses >= MAX_LOSSES_TOGETHER and not _is_further(request)


def _count(request: Request) -> None:
    if _is_further(request):
        request.num_losses = 0
        request.num_emitted_at_loss = _num_emitted(request)
    request.num_losses += 1


def _is_further(request: Request) -> bool:
    return _num_emitted(request) > request.num_emitted_at_loss


def _num_emitted(request: Request) -> int:
    return sum(sequence.num_emitted for sequence in request.sequences)
