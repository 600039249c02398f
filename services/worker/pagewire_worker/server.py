"""Runs a worker process: loads the replica, keeps it attached, answers health checks, stops."""

import asyncio
import contextlib
import dataclasses
import os

from pagewire_shared.pair.addresses import parse_schedulers
from pagewire_shared.process import collector
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc import links
from pagewire_shared.rpc.address import parse_address
from pagewire_shared.rpc.options import kv_server_options
from pagewire_shared.rpc.server import RpcServer, start_server
from pagewire_shared.security.roles import LinkRole
from pagewire_worker.config import WorkerConfig
from pagewire_worker.connectors.making import connector_of
from pagewire_worker.extension.worker_extension import require_extension
from pagewire_worker.link.adapter_service import AdapterContentService
from pagewire_worker.link.health import answer_liveness, answer_readiness
from pagewire_worker.link.service import SERVICE_NAMES, KvTransferService, register
from pagewire_worker.loading.replica import ReplicaInfo
from pagewire_worker.loading.replica_memory import ReplicaMemory
from pagewire_worker.parallel.rank_group import RankGroup
from pagewire_worker.rank_hosts.lws import place_of, with_hosts
from pagewire_worker.runner.model_thread import ModelThread
from pagewire_worker.serving.awake import LAST_PULLS_SECONDS
from pagewire_worker.serving.jobs import first_failure, until_stopped
from pagewire_worker.serving.life import WorkerLife
from pagewire_worker.serving.ports import WorkerPorts
from pagewire_worker.transfer_engines.making import engine_of

STOP_GRACE_SECONDS = 1.0
REPORTED_STEP = 0.05


async def serve_worker(config: WorkerConfig, context: ProcessContext) -> None:
    """Serve until `context.stop`. Raises StartupError or PeerRefusedError."""
    parse_schedulers(config.scheduler, setting="--scheduler")
    config = with_hosts(config, place_of(config, os.environ))
    connector = connector_of(config)
    require_extension(config.worker_extension_cls)
    service = KvTransferService(is_off=config.kv_transport == "off")
    engine = engine_of(
        config.kv_transport,
        config.advertise_address or config.listen or "",
        is_insecure=config.insecure,
    )
    ports = WorkerPorts(service, AdapterContentService(), asyncio.Event(), engine)
    server = await _listen(config, context, ports)
    thread = ModelThread(asyncio.get_running_loop())
    thread.start()
    memory = ReplicaMemory(config, on_layer=thread.advance)
    group: RankGroup | None = None
    try:
        found = await until_stopped(_load(memory, context, thread), context.stop)
        if found is None:
            return
        group = memory.replica.group
        info = await _with_endpoint(config, server, found)
        life = WorkerLife(
            config=config,
            memory=memory,
            info=info,
            thread=thread,
            ports=ports,
            connector=connector,
        )
        # Liveness only from here on: the progress of a download is not visible.
        liveness = answer_liveness(server, context, thread, config.stuck_seconds)
        jobs = [life.run(), _report_ready(info, ports.attached, context), liveness]
        if server is not None:
            jobs.append(answer_readiness(server, ports.attached, context))
        jobs.append(_fail_with(group))
        await until_stopped(
            first_failure(*jobs),
            context.stop,
            lambda: _drain(life, service, config.drain_seconds, context),
        )
        context.status.report("stopping")
    finally:
        await _stop(server, group, thread)


async def _stop(server: RpcServer | None, group: RankGroup | None, thread: ModelThread) -> None:
    if server is not None:
        await server.stop(STOP_GRACE_SECONDS)
    if group is not None:
        # Before the thread: a step that waits for a lost rank ends now.
        await asyncio.to_thread(group.close)
    thread.stop(STOP_GRACE_SECONDS)


async def _with_endpoint(
    config: WorkerConfig, server: RpcServer | None, info: ReplicaInfo
) -> ReplicaInfo:
    """Return `info` with the address of the server, which has started now."""
    if server is None:
        return info
    await server.set_started()
    endpoint = config.advertise_address or str(server.address)
    instance = "" if server.address.is_unix else links.own_instance(LinkRole.WORKER)
    if instance:
        endpoint = f"{instance}@{endpoint}"  # who pulls asks the holder for this instance
    return dataclasses.replace(info, kv_endpoints=(endpoint,))


async def _listen(
    config: WorkerConfig, context: ProcessContext, ports: WorkerPorts
) -> RpcServer | None:
    if config.listen is None:
        return None
    address = parse_address(config.listen, setting="--listen")
    server = await start_server(
        address,
        lambda made: register(ports.transfer, ports.adapters, made),
        SERVICE_NAMES,
        setting="--listen",
        options=kv_server_options(),
    )
    context.status.report("listening", address=str(server.address))
    return server


async def _load(memory: ReplicaMemory, context: ProcessContext, thread: ModelThread) -> ReplicaInfo:
    reported = -1.0

    def on_progress(fraction: float, detail: str) -> None:
        nonlocal reported
        thread.advance()
        if fraction >= reported + REPORTED_STEP or fraction == 1.0:
            reported = fraction
            context.status.report("loading", fraction=round(fraction, 3), detail=detail)

    replica = await thread.submit(lambda: memory.load(on_progress))
    replica.model_runner.hurry_when(lambda: thread.has_jobs)
    collector.freeze_gc()
    return replica.info


async def _report_ready(
    info: ReplicaInfo, attached: asyncio.Event, context: ProcessContext
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
    await asyncio.Event().wait()


async def _fail_with(group: RankGroup | None) -> None:
    """Raise RankLostError when a rank is lost; never ends otherwise."""
    await (asyncio.Event().wait() if group is None else asyncio.wrap_future(group.lost))


async def _drain(
    life: WorkerLife, service: KvTransferService, seconds: float, context: ProcessContext
) -> None:
    """Let requests finish for at most `seconds`, then wait for the last pulls."""
    if seconds > 0.0:
        context.status.report("draining")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await life.leave()
        await service.finish(LAST_PULLS_SECONDS)
