"""The admin API of a frontend: passes an operator's queries on to its schedulers. `key_interceptor`
checks before that the key may administrate."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from pagewire_frontend.access.admin_log import noted
from pagewire_frontend.grpc_api.tensor_service import TensorCall
from pagewire_frontend.models.model_registry import ModelRegistry
from pagewire_frontend.scheduler.inspection_link import InspectionLinks
from pagewire_frontend.scheduler.link import SchedulerLink
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.scheduler.sleep_link import SleepCalls
from pagewire_frontend.scheduler.weights_link import WeightsCalls
from pagewire_frontend.weights.inbox import WeightsInbox
from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_shared.errors import ModelNotFoundError, UnavailableError
from pagewire_shared.identity.ids import find_worker
from pagewire_shared.inspection.worker_calls_service import WorkerCalls
from pagewire_shared.pair.finder import PairMember

DEFAULT_AUDIT_MS = 2000
DEFAULT_TEST_MS = 10_000
# The scheduler needs its own time to ask its peers before it answers us.
MARGIN_SECONDS = 1.0
RESET_SECONDS = 5.0
OPERATE_SECONDS = 5.0

Context = grpc.aio.ServicerContext[Any, Any]


class AdminService(admin_pb2_grpc.AdminServiceServicer):
    """Passes an operator's queries on to every attached scheduler."""

    def __init__(
        self, pool: SchedulerPool, models: ModelRegistry, inbox: WeightsInbox | None
    ) -> None:
        self._pool = pool
        self._sleep = SleepCalls(pool)
        self._weights = WeightsCalls(pool)
        inspection = InspectionLinks(pool)
        self._calls = WorkerCalls(inspection.choose)
        self._stacks = inspection.stacks
        self._tensors = TensorCall(inbox, self._weights, models.find)

    async def Audit(
        self, request: admin_pb2.AuditRequest, context: Context
    ) -> admin_pb2.AuditResponse:
        """Ask for one report per cell."""
        with noted("Audit", request):
            attached = self._attached()
            milliseconds = (
                request.timeout_ms if request.HasField("timeout_ms") else DEFAULT_AUDIT_MS
            )
            seconds = milliseconds / 1000 + MARGIN_SECONDS
            reports = await asyncio.gather(*(link.audit_cell(seconds) for link in attached))
            return admin_pb2.AuditResponse(reports=reports)

    async def ResetPrefixCache(
        self, request: admin_pb2.ResetPrefixCacheRequest, context: Context
    ) -> admin_pb2.ResetPrefixCacheResponse:
        """Make every cell drop its prefix cache, of one model or of all."""
        with noted("ResetPrefixCache", request):
            model = request.model if request.HasField("model") else None
            links = self._attached()
            if model is not None:
                links = [link for link in links if link.serves(model)]
                if not links:
                    raise ModelNotFoundError(f"no worker serves {model!r}")
            counts = await asyncio.gather(
                *(link.reset_prefix_cache(model, RESET_SECONDS) for link in links)
            )
            return admin_pb2.ResetPrefixCacheResponse(num_blocks=sum(counts))

    async def SetRoles(
        self, request: admin_pb2.SetRolesRequest, context: Context
    ) -> admin_pb2.SetRolesResponse:
        """Change the roles of a worker, in the cell that has it."""
        with noted("SetRoles", request):
            links = self._attached()
            if len(links) > 1:
                # A prefix of an id that fits a worker in each of two cells is ambiguous.
                cells = await asyncio.gather(*(_workers(link) for link in links))
                name = find_worker(request.worker, [name for cell in cells for name in cell])
                links = [link for link, cell in zip(links, cells, strict=True) if name in cell]
                request = admin_pb2.SetRolesRequest(worker=name, roles=request.roles)
            return (await links[0].operate(request, OPERATE_SECONDS)).set_roles

    async def Topology(
        self, request: admin_pb2.TopologyRequest, context: Context
    ) -> admin_pb2.TopologyResponse:
        """Ask every cell for its workers and pairs."""
        with noted("Topology", request):
            cells = await asyncio.gather(*(_topology(link, request) for link in self._attached()))
            return admin_pb2.TopologyResponse(cells=[one for each in cells for one in each])

    async def SelfTest(
        self, request: admin_pb2.SelfTestRequest, context: Context
    ) -> admin_pb2.SelfTestResponse:
        """Have every cell test its pairs."""
        with noted("SelfTest", request):
            attached = self._attached()
            milliseconds = request.timeout_ms if request.HasField("timeout_ms") else DEFAULT_TEST_MS
            seconds = milliseconds / 1000 + MARGIN_SECONDS
            answers = await asyncio.gather(*(link.operate(request, seconds) for link in attached))
            cells = [cell for answer in answers for cell in answer.self_test.cells]
            return admin_pb2.SelfTestResponse(cells=cells)

    async def Sleep(
        self, request: admin_pb2.SleepRequest, context: Context
    ) -> admin_pb2.SleepResponse:
        """Let workers sleep, in the cells that have them."""
        with noted("Sleep", request):
            return admin_pb2.SleepResponse(workers=await self._sleep.sleep(request))

    async def WakeUp(
        self, request: admin_pb2.WakeUpRequest, context: Context
    ) -> admin_pb2.WakeUpResponse:
        """Wake workers, in the cells that have them."""
        with noted("WakeUp", request):
            return admin_pb2.WakeUpResponse(workers=await self._sleep.wake_up(request))

    async def UpdateWeights(
        self, request: admin_pb2.UpdateWeightsRequest, context: Context
    ) -> admin_pb2.UpdateWeightsResponse:
        """Give the workers of a model the weights of a folder."""
        with noted("UpdateWeights", request):
            workers = await self._weights.update(request)
            return admin_pb2.UpdateWeightsResponse(workers=workers)

    async def StreamWeights(
        self, request_iterator: AsyncIterator[admin_pb2.StreamWeightsRequest], context: Context
    ) -> admin_pb2.StreamWeightsResponse:
        """Give the workers of a model the weights that come."""
        with noted("StreamWeights", None):
            workers = await self._tensors.run(request_iterator)
            return admin_pb2.StreamWeightsResponse(workers=workers)

    async def StartProfile(
        self, request: admin_pb2.StartProfileRequest, context: Context
    ) -> admin_pb2.StartProfileResponse:
        """Begin to profile workers."""
        with noted("StartProfile", request):
            return await self._calls.start_profile(request)

    async def ReadProfile(
        self, request: admin_pb2.ReadProfileRequest, context: Context
    ) -> AsyncIterator[admin_pb2.ReadProfileResponse]:
        """Send the trace of a worker."""
        with noted("ReadProfile", request):
            async with contextlib.aclosing(self._calls.read_profile(request)) as pieces:
                async for piece in pieces:
                    yield piece

    async def Stacks(
        self, request: admin_pb2.StacksRequest, context: Context
    ) -> admin_pb2.StacksResponse:
        """Return where the code of all processes is."""
        with noted("Stacks", request):
            return await self._stacks(request)

    async def CollectiveRpc(
        self, request: admin_pb2.CollectiveRpcRequest, context: Context
    ) -> admin_pb2.CollectiveRpcResponse:
        """Call a method of the extensions of workers."""
        # Arguments are data of the operator, of any size, and are not logged.
        with noted("CollectiveRpc", {"method": request.method[:64]}):
            return await self._calls.collective_rpc(request)

    def _attached(self) -> list[SchedulerLink]:
        attached = [link for link in self._pool if link.is_attached]
        if not attached:
            raise UnavailableError(self._pool.why_not_served())
        return attached


async def _topology(
    link: SchedulerLink, request: admin_pb2.TopologyRequest
) -> list[admin_pb2.CellTopology]:
    """Return what the scheduler of a link says of its cell, and which one of a pair it is."""
    cells = list((await link.operate(request, OPERATE_SECONDS)).topology.cells)
    for cell in cells:
        cell.schedulers.extend(map(_scheduler, link.schedulers()))
    return cells


def _scheduler(member: PairMember) -> admin_pb2.SchedulerTopology:
    state = admin_pb2.SCHEDULER_STATE_LOST
    if member.is_active:
        state = admin_pb2.SCHEDULER_STATE_ACTIVE
    elif member.is_heard:
        state = admin_pb2.SCHEDULER_STATE_STANDBY
    return admin_pb2.SchedulerTopology(address=str(member.address), state=state)


async def _workers(link: SchedulerLink) -> list[str]:
    """Return the ids of a cell's workers in hex."""
    answer = await link.operate(admin_pb2.TopologyRequest(), OPERATE_SECONDS)
    return [worker.worker for cell in answer.topology.cells for worker in cell.workers]
