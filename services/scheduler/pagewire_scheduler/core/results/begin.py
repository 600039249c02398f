"""Binds requests to the weights of their first output."""

from pagewire_scheduler.core.data.events import BegunEvent
from pagewire_scheduler.core.state.frontend import begun_event
from pagewire_scheduler.core.state.request import Request
from pagewire_scheduler.core.state.worker import WorkerState


def note_begun(worker: WorkerState, request: Request, begun: list[BegunEvent]) -> None:
    """Note that `worker` computes output of a request; the first time an event is added.

    All other output has to be of the same weights, on whichever worker.
    """
    if request.weights is None:
        request.weights = worker.info.weights
        event = begun_event(request)
        if event is not None:
            begun.append(event)
    assert not request.weights.excludes(worker.info.weights), "output of two versions of weights"
