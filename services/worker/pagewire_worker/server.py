"""Runs a worker process: loads the replica, keeps it attached, answers health checks, stops."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine
from typing import Any

from pagewire_shared.process import ProcessContext
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.server import RpcServer, start_server
from pagewire_worker.config import WorkerConfig
from pagewire_worker.loader import Replica, load_replica
from pagewire_worker.model_thread import ModelThread
from pagewire_worker.offload.connector import KvConnector
from pagewire_worker.offload.connector_registry import make_connector
from pagewire_worker.offload.kv_offload import KvOffload
from pagewire_worker.scheduler_link import SchedulerLink
from pagewire_worker.service import SERVICE_NAMES, register

STOP_GRACE_SECONDS = 1.0
REPORTED_STEP = 0.05


async def serve_worker(config: WorkerConfig, context: ProcessContext) -> None:
    """Serve until `context.stop`. Raises StartupError or PeerRefusedError."""
    scheduler = parse_address(config.scheduler, setting="--scheduler")
    connector = None if config.kv_offload == "off" else make_connector(config.kv_connector)
    server = await _listen(config, context)
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    try:
        replica = await _until_stopped(_load(config, context, thread), context.stop)
        if replica is None:
            return
        info = replica.info
        if server is not None:
            endpoint = config.advertise_address or str(server.address)
            info = dataclasses.replace(info, kv_endpoints=(endpoint,))
        attached = asyncio.Event()
        offload = _make_offload(replica, thread, connector)
        link = SchedulerLink(
            str(scheduler), info, replica.executor, thread, attached, replica.grammars, offload
        )
        jobs = [link.run(), _follow(attached, server, context)]
        if offload is not None:
            jobs.append(offload.run())
        await _until_stopped(
            _first_failure(*jobs),
            context.stop,
            lambda: _drain(link, config.drain_seconds, context),
        )
        context.status.report("stopping")
    finally:
        if server is not None:
            await server.stop(STOP_GRACE_SECONDS)
        thread.stop(STOP_GRACE_SECONDS)


def _make_offload(
    replica: Replica, thread: ModelThread, connector: KvConnector | None
) -> KvOffload | None:
    if connector is None or replica.offloader is None:
        return None
    return KvOffload(
        replica.executor,
        replica.offloader,
        thread,
        connector,
        replica.info.layout,
        num_blocks=replica.info.num_blocks,
    )


async def _listen(config: WorkerConfig, context: ProcessContext) -> RpcServer | None:
    if config.listen is None:
        return None
    address = parse_address(config.listen, setting="--listen")
    server = await start_server(address, register, SERVICE_NAMES, setting="--listen")
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

    return await thread.submit(
        lambda: load_replica(config, on_progress=on_progress, on_layer=thread.advance)
    )


async def _follow(
    attached: asyncio.Event, server: RpcServer | None, context: ProcessContext
) -> None:
    """Say ready at the first attach, and keep the health answer equal to being attached."""
    await attached.wait()
    context.status.report("ready", detail="attached to the scheduler")
    is_serving = False
    while True:
        if server is not None and is_serving != attached.is_set():
            is_serving = attached.is_set()
            await server.set_serving(is_serving)
        await asyncio.sleep(0.1)


async def _first_failure(*jobs: Coroutine[Any, Any, None]) -> None:
    """Run endless jobs; the first exception of one ends all."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(job)


async def _drain(link: SchedulerLink, seconds: float, context: ProcessContext) -> None:
    """Let requests go on to their ends, for `seconds` at most."""
    if seconds > 0.0:
        context.status.report("draining")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await link.leave()


async def _until_stopped(
    job: Coroutine[Any, Any, Any],
    stop: asyncio.Event,
    farewell: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> Any:
    """Return the result of `job`, or None when `stop` is set first and the farewell is said."""
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
        # A task group wraps what its jobs raise; the process wants the one error behind it.
        raise group.exceptions[0] from group
