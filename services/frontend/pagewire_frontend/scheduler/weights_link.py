"""Updates of weights, in all cells that serve the model."""

from typing import Final

from pagewire_frontend.scheduler.link import SchedulerLink
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import (
    InvalidRequestError,
    ModelNotFoundError,
    PagewireError,
    UnavailableError,
)
from pagewire_shared.weights.convert import (
    update_mode_from_message,
    update_mode_to_message,
    version_from_message,
)
from pagewire_shared.weights.version import UpdateMode, check_label, check_path

DEFAULT_UPDATE_MS: Final = 300_000
LOAD_SECONDS: Final = 4500.0
"""Time for a cell beyond the wait for its requests: to check the weights, and to load them."""


class WeightsCalls:
    """Passes updates on to schedulers, for gRPC and HTTP alike."""

    def __init__(self, pool: SchedulerPool) -> None:
        self._pool = pool

    async def update(
        self, request: admin_pb2.UpdateWeightsRequest
    ) -> list[admin_pb2.WorkerTopology]:
        """Give the workers of a model other weights, one cell after the other.

        Raises:
            InvalidRequestError: A field, or weights that do not do; nothing has changed, or with
                several cells nothing in this one and those after it.
            ModelNotFoundError, OverloadedError, UnavailableError: As WeightsDesk.update.
        """
        check_path(request.path)
        check_label(request.version)
        update_mode_from_message(request.mode)
        links = self._links(request)
        milliseconds = request.timeout_ms if request.HasField("timeout_ms") else DEFAULT_UPDATE_MS
        workers: list[admin_pb2.WorkerTopology] = []
        for number, link in enumerate(links):
            try:
                answer = await link.operate(request, milliseconds / 1000 + LOAD_SECONDS)
            except PagewireError as error:
                if number:
                    error.message += f" ({number} of {len(links)} cells have the new weights)"
                raise
            workers += answer.update_weights.workers
        return workers

    async def update_from_folder(
        self,
        path: str,
        *,
        version: str,
        mode: UpdateMode,
        model: str | None,
        timeout_seconds: float | None,
    ) -> dict[str, str]:
        """Give the workers of a model other weights; return their versions by worker. Errors as of
        `update`."""
        request = admin_pb2.UpdateWeightsRequest(
            path=path,
            version=version,
            mode=update_mode_to_message(mode),
            model=model,
            timeout_ms=None if timeout_seconds is None else int(timeout_seconds * 1000),
        )
        workers = await self.update(request)
        return {one.worker: version_from_message(one.weights).shown for one in workers}

    def _links(self, request: admin_pb2.UpdateWeightsRequest) -> list[SchedulerLink]:
        """Return the cells that serve the model of a request, which names it then."""
        attached = [link for link in self._pool if link.is_attached]
        if not attached:
            raise UnavailableError(self._pool.why_not_served())
        if not request.HasField("model"):
            models = {name for link in attached for name in link.served}
            if len(models) > 1:
                raise InvalidRequestError("model must be named: there are several", field="model")
            if not models:
                raise UnavailableError(self._pool.why_not_served())
            request.model = models.pop()
        links = [link for link in attached if request.model in link.served]
        if not links:
            raise ModelNotFoundError(f"no worker serves {request.model!r}")
        return links
