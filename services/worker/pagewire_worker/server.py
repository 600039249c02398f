"""Runs a worker process: loads the replica, keeps it attached, answers health checks, stops."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

from pagewire_shared.kv.transport import KvTransport
from pagewire_shared.process import collector
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.options import kv_server_options
from pagewire_shared.rpc.server import RpcServer, start_server
from pagewire_worker.config import WorkerConfig
from pagewire_worker.link.adapter_service import AdapterContentService
from pagewire_worker.link.health import answer_liveness, answer_readiness
from pagewire_worker.link.metrics import show_replica
from pagewire_worker.link.scheduler_link import SchedulerLink
from pagewire_worker.link.service import SERVICE_NAMES, KvTransferService, register
from pagewire_worker.loading.loader import Replica, load_replica
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.offload.connector import KvConnector
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.offload.kv_store_client import make_connector
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.transfer.block_source import BlockSource
from pagewire_worker.transfer.kv_transfer import KvTransfer
from pagewire_worker.transfer.staging import Staging

STOP_GRACE_SECONDS = 1.0
REPORTED_STEP = 0.05
LAST_PULLS_SECONDS = 5.0
"""Time for open pulls after the scheduler has reported that no work is left."""


async def serve_worker(config: WorkerConfig, context: ProcessContext) -> None:
    """Serve until `context.stop`. Raises StartupError or PeerRefusedError."""
    scheduler = parse_address(config.scheduler, setting="--scheduler")
    connector = None if config.kv_offload == "off" else make_connector(config.kv_connector)
    service = KvTransferService(is_off=config.kv_transport == "off")
    adapter_service = AdapterContentService()
    server = await _listen(config, context, service, adapter_service)
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    ends = contextlib.AsyncExitStack()
    replica: Replica | None = None
    try:
        replica = await _until_stopped(_load(config, context, thread), context.stop)
        if replica is None:
            return
        info = await _with_endpoint(config, server, replica.info)
        _share_blocks(config, replica, thread, service, ends)
        if replica.adapters is not None:
            adapter_service.serve(replica.adapters)
        attached = asyncio.Event()
        show_replica(info, attached, replica.expert_counts, replica.speculator)
        offload = _make_offload(replica, thread, connector)
        transfer = _make_transfer(replica, thread, ends)
        link = SchedulerLink(
            address=str(scheduler),
            info=info,
            model_runner=replica.model_runner,
            thread=thread,
            attached=attached,
            grammars=replica.grammars,
            offload=offload,
            transfer=transfer,
            adapters=replica.adapters,
        )
        # Liveness only from here on: the progress of a download is not visible.
        liveness = answer_liveness(server, context, thread, config.stuck_seconds)
        jobs = [link.run(), _report_ready(info, attached, context, replica), liveness]
        if server is not None:
            jobs.append(answer_readiness(server, attached, context))
        if offload is not None:
            jobs.append(offload.run())
        jobs.append(_fail_with(replica.group))
        await _until_stopped(
            _first_failure(*jobs),
            context.stop,
            lambda: _drain(link, service, config.drain_seconds, context),
        )
        context.status.report("stopping")
    finally:
        await _stop(server, replica, thread)
        await ends.aclose()


async def _stop(server: RpcServer | None, replica: Replica | None, thread: ModelThread) -> None:
    if server is not None:
        await server.stop(STOP_GRACE_SECONDS)
    if replica is not None and replica.group is not None:
        # Before the thread: a step that waits for a lost rank ends now.
        await asyncio.to_thread(replica.group.close)
    thread.stop(STOP_GRACE_SECONDS)


async def _with_endpoint(
    config: WorkerConfig, server: RpcServer | None, info: ReplicaInfo
) -> ReplicaInfo:
    """Return `info` with the address of the server, which has started now."""
    if server is None:
        return info
    await server.set_started()
    endpoint = config.advertise_address or str(server.address)
    return dataclasses.replace(info, kv_endpoints=(endpoint,))


def _share_blocks(
    config: WorkerConfig,
    replica: Replica,
    thread: ModelThread,
    service: KvTransferService,
    ends: contextlib.AsyncExitStack,
) -> None:
    """Serve blocks to other workers, if that is on."""
    if replica.sharer is None:
        ends.callback(replica.copies.close)
        return
    is_shared = KvTransport.SHARED_MEMORY in replica.info.kv_transports
    staging = Staging(config.kv_staging_memory, is_shared=is_shared, pin=replica.copies.pin)
    ends.callback(staging.close)
    # The stack closes the copies first: their staging memory must still exist.
    ends.callback(replica.copies.close)
    replica.sharer.connect(thread.nudge)
    thread.add_low_priority(replica.sharer.turn)
    source = BlockSource(
        replica.sharer,
        staging,
        replica.info.layout,
        worker_id=replica.info.worker_id,
        num_blocks=replica.info.num_blocks,
    )
    service.serve(source)


def _make_transfer(
    replica: Replica, thread: ModelThread, ends: contextlib.AsyncExitStack
) -> KvTransfer | None:
    transports = replica.info.pull_transports
    if not transports:
        return None
    transfer = KvTransfer(
        replica.model_runner,
        thread,
        replica.info.layout,
        num_blocks=replica.info.num_blocks,
        may_share_memory=KvTransport.SHARED_MEMORY in transports,
    )
    ends.push_async_callback(transfer.close)
    return transfer


def _make_offload(
    replica: Replica, thread: ModelThread, connector: KvConnector | None
) -> KvOffload | None:
    if connector is None or replica.offloader is None:
        return None
    return KvOffload(
        model_runner=replica.model_runner,
        offloader=replica.offloader,
        thread=thread,
        connector=connector,
        layout=replica.info.layout,
        num_blocks=replica.info.num_blocks,
    )


async def _listen(
    config: WorkerConfig,
    context: ProcessContext,
    service: KvTransferService,
    adapters: AdapterContentService,
) -> RpcServer | None:
    if config.listen is None:
        return None
    address = parse_address(config.listen, setting="--listen")
    server = await start_server(
        address,
        lambda made: register(service, adapters, made),
        SERVICE_NAMES,
        setting="--listen",
        options=kv_server_options(),
    )
    context.status.report("listening", address=str(server.address))
    return server


async def _load(config: WorkerConfig, context: ProcessContext, thread: ModelThread) -> Replica:
    reported = -1.0

    def on_progress(fraction: float, detail: str) -> None:
        nonlocal reported
        thread.advance()
        if fraction >= reported + REPORTED_STEP or fraction == 1.0:
            reported = fraction
            context.status.report("loading", fraction=round(fraction, 3), detail=detail)

    replica = await thread.submit(
        lambda: load_replica(config, on_progress=on_progress, on_layer=thread.advance)
    )
    replica.model_runner.hurry_when(lambda: thread.has_jobs)
    collector.freeze_gc()
    return replica


async def _report_ready(
    info: ReplicaInfo, attached: asyncio.Event, context: ProcessContext, replica: Replica
) -> None:
    """Report ready, and what fits, at the first attach. Never ends, like all jobs of a worker."""
    await attached.wait()
    context.status.report(
        "ready",
        detail="attached to the scheduler",
        model=info.served_model_name,
        max_model_len=info.max_model_len,
        num_tokens=info.num_blocks * info.cache_groups[0].block_size,
        max_num_seqs=info.max_num_seqs,
    )
    replica.model_runner.backend.kv_cache.touch()
    await asyncio.Event().wait()


async def _fail_with(group: RankGroup | None) -> None:
    """Raise RankLostError when a rank is lost; never ends otherwise."""
    await (asyncio.Event().wait() if group is None else asyncio.wrap_future(group.lost))


async def _first_failure(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run endless jobs; the first exception of one ends all."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(job)


async def _drain(
    link: SchedulerLink, service: KvTransferService, seconds: float, context: ProcessContext
) -> None:
    """Let requests finish for at most `seconds`, then wait for the last pulls."""
    if seconds > 0.0:
        context.status.report("draining")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await link.leave()
        await service.finish(LAST_PULLS_SECONDS)


async def _until_stopped(
    job: Coroutine[Any, Any, Any],
    stop: asyncio.Event,
    farewell: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Any:
    """Return the result of `job`, or None if `stop` is set first; `farewell` runs before that."""
    task = asyncio.ensure_future(job)
    waiter = asyncio.ensure_future(stop.wait())
    await asyncio.wait((task, waiter), return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if not task.done() and farewell is not None:
        leaving = asyncio.ensure_future(farewell())
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
    if not task.done():
        task.cancel()
        await asyncio.wait((task,))
        return None
    return _result(task)


def _result(task: "asyncio.Future[Any]") -> Any:
    try:
        return task.result()
    except BaseExceptionGroup as group:
        # A task group wraps the errors of its jobs; the process needs the first one itself.
        raise group.exceptions[0] from group
