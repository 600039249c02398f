"""The gRPC services of the scheduler: takes the hello of a stream and hands the stream to a link.
It also starts and stops the process."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar, cast

import grpc
import grpc.aio

from pagewire_protos.scheduler.v1 import (
    admin_pb2_grpc,
    frontend_attach_pb2,
    frontend_attach_pb2_grpc,
    standby_pb2_grpc,
    worker_attach_pb2,
    worker_attach_pb2_grpc,
)
from pagewire_scheduler.config import SchedulerConfig
from pagewire_scheduler.core.data.settings import HandoffPolicy, OverloadLimits, PolicyName
from pagewire_scheduler.kv_events.events_config import parse_kv_events
from pagewire_scheduler.kv_events.start import start_kv_events
from pagewire_scheduler.links.frontend_link import FrontendLink
from pagewire_scheduler.links.kvstore_link import KvStoreLink
from pagewire_scheduler.links.loop import StepLoop
from pagewire_scheduler.links.standby_service import CellStandby, StandbyServicer
from pagewire_scheduler.links.store_assignments import StoreAssignments
from pagewire_scheduler.links.worker_link import WorkerLink
from pagewire_scheduler.metrics.cell import CellMeter
from pagewire_scheduler.metrics.kv import DecisionMeter
from pagewire_scheduler.operators.admin_service import AdminServicer
from pagewire_scheduler.operators.audit_service import Auditor
from pagewire_scheduler.operators.operator_service import CellOperator
from pagewire_shared.errors import WireError
from pagewire_shared.process import collector
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.server import RpcServer, start_server
from pagewire_shared.security.caller_check import peer_of
from pagewire_shared.security.claims import IdentityClaims, check_endpoints
from pagewire_shared.security.roles import LinkRole

HELLO_SECONDS = 10.0
STOP_GRACE_SECONDS = 0.2
METRICS_SECONDS = 1.0
SERVICE_NAMES = (
    "pagewire.scheduler.v1.FrontendAttachService",
    "pagewire.scheduler.v1.WorkerAttachService",
    "pagewire.scheduler.v1.AdminService",
    "pagewire.scheduler.v1.StandbyService",
)

Message = TypeVar("Message")


async def _first(requests: AsyncIterator[Message]) -> Message:
    """Return the first message of a stream. Raises WireError when none comes in time."""
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            return await anext(requests)
    except (TimeoutError, StopAsyncIteration) as error:
        raise WireError("a stream must begin with a hello") from error


class WorkerAttachServicer(worker_attach_pb2_grpc.WorkerAttachServiceServicer):
    """Serves attach streams of workers."""

    def __init__(self, loop: StepLoop, kvstores: tuple[str, ...], standby: CellStandby) -> None:
        self._loop = loop
        self._standby = standby
        self._shares = StoreAssignments(kvstores)
        self._claims = IdentityClaims()

    async def AttachWorker(
        self, request_iterator: AsyncIterator[worker_attach_pb2.AttachWorkerRequest], context: Any
    ) -> AsyncIterator[worker_attach_pb2.AttachWorkerResponse]:
        """Serve one worker until its stream ends."""
        requests = aiter(request_iterator)
        first = await _first(requests)
        if first.WhichOneof("message") != "hello":
            raise WireError("a stream must begin with a hello")
        self._standby.require_active()
        peer = peer_of(context)
        check_endpoints(peer, LinkRole.WORKER, first.hello.kv_endpoints)
        self._claims.check(peer, first.hello.worker_id)
        link = WorkerLink(self._loop, first.hello)
        with self._shares.take() as kvstores:
            async for message in link.run(requests, kvstores):
                yield message


class FrontendAttachServicer(frontend_attach_pb2_grpc.FrontendAttachServiceServicer):
    """Serves attach streams of frontends."""

    def __init__(
        self, loop: StepLoop, auditor: Auditor, operator: CellOperator, standby: CellStandby
    ) -> None:
        self._loop = loop
        self._standby = standby
        self._auditor = auditor
        self._operator = operator
        self._claims = IdentityClaims()

    async def AttachFrontend(
        self,
        request_iterator: AsyncIterator[frontend_attach_pb2.AttachFrontendRequest],
        context: Any,
    ) -> AsyncIterator[frontend_attach_pb2.AttachFrontendResponse]:
        """Serve one frontend until its stream ends."""
        requests = aiter(request_iterator)
        first = await _first(requests)
        if first.WhichOneof("message") != "hello":
            raise WireError("a stream must begin with a hello")
        self._standby.require_active()
        self._claims.check(peer_of(context), first.hello.frontend_id)
        link = FrontendLink(self._loop, first.hello, self._auditor.collect, self._operator.answer)
        async for message in link.run(requests):
            yield message


async def start(
    config: SchedulerConfig, loop: StepLoop, standby: CellStandby | None = None
) -> RpcServer:
    """Start the scheduler's server on the configured address, SERVING. Without `standby` it is the
    only scheduler of its cell."""
    standby = standby or CellStandby(loop, is_paired=False)
    auditor = Auditor(loop)
    operator = CellOperator(loop, config.kvstore)

    def register(server: grpc.aio.Server) -> None:
        frontend_attach_pb2_grpc.add_FrontendAttachServiceServicer_to_server(
            FrontendAttachServicer(loop, auditor, operator, standby), server
        )
        worker_attach_pb2_grpc.add_WorkerAttachServiceServicer_to_server(
            WorkerAttachServicer(loop, config.kvstore, standby), server
        )
        admin_pb2_grpc.add_AdminServiceServicer_to_server(
            AdminServicer(auditor, operator, loop, standby), server
        )
        standby_pb2_grpc.add_StandbyServiceServicer_to_server(StandbyServicer(standby), server)

    address = parse_address(config.listen, setting="--listen")
    server = await start_server(address, register, SERVICE_NAMES, setting="--listen")
    await server.set_serving(True)
    return server


async def serve(config: SchedulerConfig, context: ProcessContext) -> None:
    """Run the scheduler until a stop is requested or the step loop fails. One that is replaced by
    the other scheduler of its cell begins anew, and stands by."""
    is_paired = config.paired
    while await _serve_term(config, context, is_paired=is_paired):
        is_paired = True


async def _serve_term(config: SchedulerConfig, context: ProcessContext, *, is_paired: bool) -> bool:
    """Serve until the end, or until another scheduler has replaced this one; return whether that
    happened. Nothing of the cell's state outlives a term."""
    loop = create_loop(config)
    standby = CellStandby(loop, is_paired=is_paired)
    events = start_kv_events(
        parse_kv_events(config.kv_events_config),
        loop,
        is_insecure=config.insecure,
        is_caching=config.enable_prefix_caching,
        is_standing_by=is_paired,
    )
    server = await start(config, loop, standby)
    context.status.report("listening", address=str(server.address))
    detail = "standing by" if is_paired else f"generation {loop.generation.number}"
    context.status.report("ready", detail=detail)
    # Finished requests leave no reference cycles (core/scheduler_core.py), and thousands are live.
    collector.freeze_gc(is_full_rare=True)
    clock = asyncio.create_task(loop.run_clock())
    role = asyncio.create_task(standby.run())
    stop = asyncio.create_task(context.stop.wait())
    watches = [*watch_stores(config, loop), *events.tasks(standby)]
    ends: set[asyncio.Future[Any]] = {loop.driven.failure, clock, role, stop, *watches}
    try:
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for finished in done:
            finished.result()
        return role in done and stop not in done
    finally:
        for task in (clock, role, stop, *watches):
            task.cancel()
        await server.stop(STOP_GRACE_SECONDS)
        events.close()


def watch_stores(config: SchedulerConfig, loop: StepLoop) -> list[asyncio.Task[None]]:
    """Return running tasks that watch the KV stores and show the counts of the core. No task ends
    by itself."""
    stores = () if config.kv_load == "never" else config.kvstore
    for store in stores:
        loop.driven.set_store(store, is_up=False)  # known before it is reached
    watches = [KvStoreLink(store, loop.driven).run() for store in stores]
    return [asyncio.create_task(watch) for watch in (*watches, _show_counts(loop))]


async def _show_counts(loop: StepLoop) -> None:
    meter, cell = DecisionMeter(), CellMeter()
    while True:
        cell.show_load(loop.driven.newest_load, len(loop.frontends))
        cell.show_totals(loop.core.counts)
        counts = loop.core.counts
        loads = counts.loads
        meter.show(loads.verdicts, loads.num_overdue, loads.num_uncopied)
        meter.show_handoffs(counts.handoffs.verdicts, counts.handoffs.num_moves)
        await asyncio.sleep(METRICS_SECONDS)


def create_loop(config: SchedulerConfig) -> StepLoop:
    """Return a step loop on the running event loop."""
    return StepLoop(
        is_caching=config.enable_prefix_caching,
        limits=OverloadLimits(
            max_num_waiting=config.max_num_waiting,
            max_waiting_tokens=config.max_waiting_tokens,
            max_request_bytes=config.max_request_bytes,
        ),
        policy=cast(PolicyName, config.queue_policy),
        tenant_weights=dict(config.tenant_weight),
        is_sharing_between_tenants=config.share_prefixes_between_tenants,
        is_load_forced=config.kv_load == "always",
        asks_outside_stores=config.kv_load != "never",
        handoff=cast(HandoffPolicy, config.handoff),
        num_stores=len(config.kvstore),
        num_copies=config.kvstore_copies,
        lease_seconds=config.lease_seconds,
        cell=config.cell,
        notes_cache_changes=parse_kv_events(config.kv_events_config).is_on,
        # The event loop's own clock may stand still for a turn and count whole milliseconds.
        clock=time.monotonic,
    )
