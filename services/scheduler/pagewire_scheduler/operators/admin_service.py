"""The gRPC service of operators: reads requests, calls the auditor and the operator of the cell,
and writes responses."""

import contextlib
from collections.abc import AsyncIterator

from pagewire_protos.scheduler.v1 import admin_pb2, admin_pb2_grpc
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.standby_service import CellStandby
from pagewire_scheduler.operators.audit_service import DEFAULT_TIMEOUT_SECONDS, Auditor
from pagewire_scheduler.operators.operator_service import CellOperator
from pagewire_shared.errors import InvalidRequestError, ModelNotFoundError
from pagewire_shared.inspection.worker_calls_service import WorkerCalls


class AdminServicer(admin_pb2_grpc.AdminServiceServicer):
    """Serves the requests of operators. A scheduler that stands by refuses them."""

    def __init__(
        self, auditor: Auditor, operator: CellOperator, loop: StepLoop, standby: CellStandby
    ) -> None:
        self._auditor = auditor
        self._operator = operator
        self._loop = loop
        self._standby = standby
        self._calls = WorkerCalls(operator.questions.choose)

    async def Audit(
        self, request: admin_pb2.AuditRequest, context: object
    ) -> admin_pb2.AuditResponse:
        """Return the audit of this cell."""
        self._standby.require_active()
        seconds = DEFAULT_TIMEOUT_SECONDS
        if request.HasField("timeout_ms"):
            seconds = request.timeout_ms / 1000
        return admin_pb2.AuditResponse(reports=[await self._auditor.collect(seconds)])

    async def ResetPrefixCache(
        self, request: admin_pb2.ResetPrefixCacheRequest, context: object
    ) -> admin_pb2.ResetPrefixCacheResponse:
        """Reset the prefix caches of this cell, for one model or for all."""
        self._standby.require_active()
        model = request.model if request.HasField("model") else None
        if model is not None and model not in {m.name for m, _ in self._loop.core.models()}:
            raise ModelNotFoundError(f"no worker serves {model!r}")
        return admin_pb2.ResetPrefixCacheResponse(num_blocks=self._loop.reset_prefix_cache(model))

    async def SetRoles(
        self, request: admin_pb2.SetRolesRequest, context: object
    ) -> admin_pb2.SetRolesResponse:
        """Change the roles of a worker of this cell."""
        self._standby.require_active()
        return self._operator.set_roles(request)

    async def Topology(
        self, request: admin_pb2.TopologyRequest, context: object
    ) -> admin_pb2.TopologyResponse:
        """Return the workers of this cell, and the pairs that exchange blocks."""
        self._standby.require_active()
        return await self._operator.topology()

    async def SelfTest(
        self, request: admin_pb2.SelfTestRequest, context: object
    ) -> admin_pb2.SelfTestResponse:
        """Move blocks between the workers of every pair of this cell."""
        self._standby.require_active()
        return await self._operator.self_test(request)

    async def Sleep(
        self, request: admin_pb2.SleepRequest, context: object
    ) -> admin_pb2.SleepResponse:
        """Let workers of this cell sleep."""
        self._standby.require_active()
        return await self._operator.sleep(request)

    async def WakeUp(
        self, request: admin_pb2.WakeUpRequest, context: object
    ) -> admin_pb2.WakeUpResponse:
        """Wake workers of this cell."""
        self._standby.require_active()
        return await self._operator.wake_up(request)

    async def UpdateWeights(
        self, request: admin_pb2.UpdateWeightsRequest, context: object
    ) -> admin_pb2.UpdateWeightsResponse:
        """Give the workers of a model of this cell other weights."""
        self._standby.require_active()
        return await self._operator.update_weights(request)

    async def StartProfile(
        self, request: admin_pb2.StartProfileRequest, context: object
    ) -> admin_pb2.StartProfileResponse:
        """Begin to profile workers of this cell."""
        self._standby.require_active()
        return await self._calls.start_profile(request)

    async def ReadProfile(
        self, request: admin_pb2.ReadProfileRequest, context: object
    ) -> AsyncIterator[admin_pb2.ReadProfileResponse]:
        """Send the trace of a worker of this cell."""
        self._standby.require_active()
        async with contextlib.aclosing(self._calls.read_profile(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def Stacks(
        self, request: admin_pb2.StacksRequest, context: object
    ) -> admin_pb2.StacksResponse:
        """Return where the code of the processes of this cell is; also when standing by."""
        return await self._operator.stacks.collect(request)

    async def CollectiveRpc(
        self, request: admin_pb2.CollectiveRpcRequest, context: object
    ) -> admin_pb2.CollectiveRpcResponse:
        """Call a method of the extensions of workers of this cell."""
        self._standby.require_active()
        return await self._calls.collective_rpc(request)

    async def StreamWeights(
        self, request_iterator: AsyncIterator[admin_pb2.StreamWeightsRequest], context: object
    ) -> admin_pb2.StreamWeightsResponse:
        """Refuse: frontends take tensors."""
        raise InvalidRequestError(
            "a scheduler takes no tensors: send them to a frontend with --weights-dir"
        )
