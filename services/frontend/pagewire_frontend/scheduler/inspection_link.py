"""Asks workers and processes on behalf of operators, in all cells that have one that is meant."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from pagewire_frontend.scheduler.link import SchedulerLink
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_protos.common.v1 import stacks_pb2, worker_query_pb2
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_protos.scheduler.v1 import frontend_attach_pb2 as pb
from pagewire_shared.errors import ModelNotFoundError, UnavailableError
from pagewire_shared.identity.ids import find_worker
from pagewire_shared.inspection.stacks import is_asked_for, own_stacks
from pagewire_shared.inspection.stacks_convert import (
    fitted_stacks,
    stacks_to_message,
    without_stacks,
)
from pagewire_shared.inspection.worker_calls_service import MAX_SECONDS, WorkerCalls

DEFAULT_STACKS_MS: Final = 2000
MARGIN_SECONDS: Final = 1.0
TOPOLOGY_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class LinkedWorker:
    """A worker of the cell behind a link, to be asked."""

    link: SchedulerLink
    name: str

    async def ask(
        self, query: worker_query_pb2.WorkerQuery, seconds: float
    ) -> worker_query_pb2.WorkerAnswer:
        """Return its answer. Raises UnavailableError without one."""
        question = pb.WorkerQuestion(worker=self.name, timeout_ms=int(seconds * 1000), query=query)
        return (await self.link.operate(question, seconds + MARGIN_SECONDS)).worker_answer


class InspectionLinks:
    """Finds workers and processes in all cells."""

    def __init__(self, pool: SchedulerPool) -> None:
        self._pool = pool

    async def choose(self, worker: str | None, model: str | None) -> list[LinkedWorker]:
        """Return the workers that are meant; all for None.

        Raises:
            InvalidRequestError: No worker, or several, have an id that begins so.
            ModelNotFoundError: No worker serves the model.
            UnavailableError: No scheduler, or no worker, is attached.
        """
        links = [link for link in self._pool if link.is_attached]
        if not links:
            raise UnavailableError(self._pool.why_not_served())
        cells = await asyncio.gather(*map(_workers, links))
        workers = {
            one.worker: (LinkedWorker(link, one.worker), one.model)
            for link, cell in zip(links, cells, strict=True)
            for one in cell
        }
        if worker is not None:
            return [workers[find_worker(worker, list(workers))][0]]
        found = [one for one, served in workers.values() if model in (None, served)]
        if not found and model is not None:
            raise ModelNotFoundError(f"no worker serves {model!r}")
        if not found:
            raise UnavailableError("no worker is attached")
        return found

    async def stacks(self, request: admin_pb2.StacksRequest) -> admin_pb2.StacksResponse:
        """Return where the code of the processes of all cells is.

        A scheduler that does not answer has an entry that says so, and then this process answers
        for itself. Raises InvalidRequestError.
        """
        milliseconds = request.timeout_ms if request.HasField("timeout_ms") else DEFAULT_STACKS_MS
        seconds = milliseconds / 1000 + MARGIN_SECONDS
        links = [link for link in self._pool if link.is_attached]
        answers = await asyncio.gather(
            *(link.operate(request, seconds) for link in links), return_exceptions=True
        )
        found: dict[tuple[str, str], stacks_pb2.ProcessStacks] = {}
        for link, answer in zip(links, answers, strict=True):
            if isinstance(answer, UnavailableError):
                name = str(link.address)
                found["scheduler", name] = without_stacks("scheduler", name, answer.message)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                # A frontend is attached to all cells.
                for one in answer.stacks.processes:
                    found.setdefault((one.role, one.name), one)
        self._add_own(request, found)
        return admin_pb2.StacksResponse(processes=fitted_stacks(found.values()))

    def _add_own(
        self,
        request: admin_pb2.StacksRequest,
        found: dict[tuple[str, str], stacks_pb2.ProcessStacks],
    ) -> None:
        role, name = "frontend", self._pool.frontend_id.hex()
        target = request.target if request.HasField("target") else None
        if (role, name) not in found and is_asked_for(target, role, name):
            found[role, name] = stacks_to_message(own_stacks(role, name))


class ProfileCalls:
    """Profiles all workers, for HTTP."""

    def __init__(self, pool: SchedulerPool) -> None:
        self._choose = InspectionLinks(pool).choose
        self._calls = WorkerCalls(self._choose)

    async def start_all(self) -> None:
        """Begin, for as long and as many steps as may be; errors as of WorkerCalls."""
        request = admin_pb2.StartProfileRequest(timeout_ms=int(MAX_SECONDS * 1000))
        await self._calls.start_profile(request)

    async def end_all(self) -> AsyncGenerator[tuple[str, bytes], None]:
        """End the profiles, and yield the id in hex of each worker with its trace."""
        for worker in await self._choose(None, None):
            request = admin_pb2.ReadProfileRequest(worker=worker.name, ends_profile=True)
            trace = bytearray()
            async with contextlib.aclosing(self._calls.read_profile(request)) as pieces:
                async for piece in pieces:
                    trace += piece.data
            yield worker.name, bytes(trace)


async def _workers(link: SchedulerLink) -> Sequence[admin_pb2.WorkerTopology]:
    answer = await link.operate(admin_pb2.TopologyRequest(), TOPOLOGY_SECONDS)
    return [worker for cell in answer.topology.cells for worker in cell.workers]
