"""Sleep and wake of workers, in all cells that have a worker that is meant."""

import asyncio
from collections.abc import Sequence
from typing import Final

from pagewire_frontend.scheduler.link import SchedulerLink
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_protos.common.v1 import sleep_pb2
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_shared.errors import ModelNotFoundError, UnavailableError
from pagewire_shared.identity.ids import find_worker
from pagewire_shared.sleep.convert import mode_to_message, tags_to_message
from pagewire_shared.sleep.state import MemoryTag, SleepMode

DEFAULT_SLEEP_MS: Final = 60_000
DEFAULT_WAKE_MS: Final = 300_000
MARGIN_SECONDS: Final = 1.0
TOPOLOGY_SECONDS: Final = 5.0

_AWAKE: Final = (sleep_pb2.MEMORY_STATE_UNSPECIFIED, sleep_pb2.MEMORY_STATE_AWAKE)


class SleepCalls:
    """Passes orders about sleep on to schedulers, for gRPC and HTTP alike."""

    def __init__(self, pool: SchedulerPool) -> None:
        self._pool = pool

    async def sleep(self, request: admin_pb2.SleepRequest) -> list[admin_pb2.WorkerTopology]:
        """Let workers sleep. Raises InvalidRequestError, ModelNotFoundError or
        UnavailableError."""
        links = await self._narrowed(request)
        milliseconds = request.timeout_ms if request.HasField("timeout_ms") else DEFAULT_SLEEP_MS
        seconds = milliseconds / 1000 + MARGIN_SECONDS
        answers = await asyncio.gather(*(link.operate(request, seconds) for link in links))
        return [worker for answer in answers for worker in answer.sleep.workers]

    async def wake_up(self, request: admin_pb2.WakeUpRequest) -> list[admin_pb2.WorkerTopology]:
        """Wake workers. Raises InvalidRequestError, ModelNotFoundError or UnavailableError."""
        links = await self._narrowed(request)
        milliseconds = request.timeout_ms if request.HasField("timeout_ms") else DEFAULT_WAKE_MS
        seconds = milliseconds / 1000 + MARGIN_SECONDS
        answers = await asyncio.gather(*(link.operate(request, seconds) for link in links))
        return [worker for answer in answers for worker in answer.wake_up.workers]

    async def sleep_all(self, level: int, mode: SleepMode, model: str | None) -> None:
        """Let all workers sleep, or those of `model`; errors as of `sleep`."""
        await self.sleep(
            admin_pb2.SleepRequest(level=level, mode=mode_to_message(mode), model=model)
        )

    async def wake_all(self, tags: frozenset[MemoryTag], model: str | None) -> None:
        """Wake all workers, or those of `model`; errors as of `wake_up`."""
        await self.wake_up(admin_pb2.WakeUpRequest(tags=tags_to_message(tags), model=model))

    async def is_sleeping(self, model: str | None) -> bool:
        """Return whether there are workers, of `model` if it is given, and none is awake."""
        cells = await asyncio.gather(*map(_workers, self._attached()))
        workers = [one for cell in cells for one in cell if model in (None, one.model)]
        if not workers and model is not None:
            raise ModelNotFoundError(f"no worker serves {model!r}")
        return bool(workers) and not any(one.sleep.state in _AWAKE for one in workers)

    async def _narrowed(
        self, request: admin_pb2.SleepRequest | admin_pb2.WakeUpRequest
    ) -> list[SchedulerLink]:
        """Return the cells that a request means; its worker has its whole id then."""
        links = self._attached()
        if not request.HasField("worker") and not request.HasField("model"):
            return links
        cells = await asyncio.gather(*map(_workers, links))
        if request.HasField("worker"):
            name = find_worker(request.worker, [one.worker for cell in cells for one in cell])
            request.worker = name
            chosen = [any(one.worker == name for one in cell) for cell in cells]
        else:
            chosen = [any(one.model == request.model for one in cell) for cell in cells]
            if not any(chosen):
                raise ModelNotFoundError(f"no worker serves {request.model!r}")
        return [link for link, is_meant in zip(links, chosen, strict=True) if is_meant]

    def _attached(self) -> list[SchedulerLink]:
        attached = [link for link in self._pool if link.is_attached]
        if not attached:
            raise UnavailableError(self._pool.why_not_served())
        return attached


async def _workers(link: SchedulerLink) -> Sequence[admin_pb2.WorkerTopology]:
    """Return the workers of a cell."""
    answer = await link.operate(admin_pb2.TopologyRequest(), TOPOLOGY_SECONDS)
    return [worker for cell in answer.topology.cells for worker in cell.workers]
