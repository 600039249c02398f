"""Collects the stacks of the processes of a cell: its own, and those that its peers send."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

import grpc.aio

from pagewire_protos.common.v1 import stacks_pb2, worker_query_pb2
from pagewire_protos.kvstore.v1 import kv_store_pb2
from pagewire_protos.kvstore.v1.kv_store_pb2_grpc import KvStoreServiceStub
from pagewire_protos.scheduler.v1 import admin_pb2
from pagewire_scheduler.links.frontend_link import FrontendLink
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.operators.worker_questions_service import WorkerQuestions
from pagewire_shared.errors import InvalidRequestError, PagewireError, UnavailableError
from pagewire_shared.inspection.stacks import is_asked_for, own_stacks
from pagewire_shared.inspection.stacks_convert import (
    fitted_stacks,
    stacks_to_message,
    without_stacks,
)
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.errors import from_rpc_error
from pagewire_shared.rpc.links import open_channel
from pagewire_shared.rpc.options import control_channel_options
from pagewire_shared.security.roles import LinkRole

DEFAULT_TIMEOUT_SECONDS: Final = 2.0
MAX_TIMEOUT_SECONDS: Final = 60.0
MAX_COLLECTIONS: Final = 4
"""Calls at once; each asks every process."""

_Stacks = list[stacks_pb2.ProcessStacks]


@dataclass(frozen=True, slots=True)
class _Asked:
    role: str
    name: str
    answer: Awaitable[_Stacks]


class CellStacks:
    """Asks every process of the cell.

    Args:
        kvstores: Addresses of the KV stores.
    """

    def __init__(
        self, loop: StepLoop, questions: WorkerQuestions, kvstores: Sequence[str] = ()
    ) -> None:
        self._loop = loop
        self._questions = questions
        self._kvstores = kvstores
        self._turns = asyncio.Semaphore(MAX_COLLECTIONS)
        self._num_queries = 0

    async def collect(self, request: admin_pb2.StacksRequest) -> admin_pb2.StacksResponse:
        """Return the stacks; a process that does not answer in time has an entry that says so.

        Raises:
            InvalidRequestError: The timeout is too long.
        """
        seconds = DEFAULT_TIMEOUT_SECONDS
        if request.HasField("timeout_ms"):
            seconds = request.timeout_ms / 1000
        if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
            raise InvalidRequestError(
                f"timeout_ms must be more than 0 and at most {MAX_TIMEOUT_SECONDS * 1000:g}",
                field="timeout_ms",
            )
        target = request.target if request.HasField("target") else None
        async with self._turns:
            asked = self._asked(target, seconds)
            found = await asyncio.gather(*(_answer_of(one, seconds) for one in asked))
        processes = [process for each in found for process in each]
        name = self._loop.generation.cell or "scheduler"
        if is_asked_for(target, "scheduler", name):
            processes.insert(0, stacks_to_message(own_stacks("scheduler", name)))
        return admin_pb2.StacksResponse(processes=fitted_stacks(processes))

    def _asked(self, target: str | None, seconds: float) -> list[_Asked]:
        self._num_queries += 1
        asked = []
        for frontend_id, frontend in self._loop.frontends.items():
            if isinstance(frontend, FrontendLink):
                answer = _of_frontend(frontend, self._num_queries)
                asked.append(_Asked("frontend", frontend_id.hex(), answer))
        for worker_id in self._loop.workers:
            asked.append(_Asked("worker", worker_id.hex(), self._of_worker(worker_id, seconds)))
        for store in self._kvstores:
            asked.append(_Asked("kvstore", store, _of_store(store, seconds)))
        chosen = []
        for one in asked:
            if is_asked_for(target, one.role, one.name):
                chosen.append(one)
            elif asyncio.iscoroutine(one.answer):
                one.answer.close()
        return chosen

    async def _of_worker(self, worker_id: bytes, seconds: float) -> _Stacks:
        query = worker_query_pb2.WorkerQuery(stacks=worker_query_pb2.WorkerStacksQuery())
        answer = await self._questions.ask(worker_id, query, seconds)
        return list(answer.stacks.processes)


async def _answer_of(asked: _Asked, seconds: float) -> _Stacks:
    """Return the stacks of a process, or an entry with the reason why they are missing."""
    try:
        async with asyncio.timeout(seconds):
            return await asked.answer
    except TimeoutError:
        reason = f"it does not answer within {seconds:g} s: its event loop may be held"
    except PagewireError as error:
        reason = error.message
    return [without_stacks(asked.role, asked.name, reason)]


async def _of_frontend(frontend: FrontendLink, query_id: int) -> _Stacks:
    future = frontend.ask_stacks(query_id)
    try:
        await asyncio.wait({future})
        if future.cancelled():
            raise UnavailableError("it is gone")
        return [future.result()]
    finally:
        future.cancel()


async def _of_store(store: str, seconds: float) -> _Stacks:
    target = str(parse_address(store, setting="--kvstore"))
    options = control_channel_options()
    async with open_channel(target, LinkRole.KVSTORE, options) as channel:
        try:
            answer = await KvStoreServiceStub(channel).GetStacks(
                kv_store_pb2.GetStacksRequest(), timeout=seconds
            )
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
    process = answer.stacks
    process.name = store
    return [process]
