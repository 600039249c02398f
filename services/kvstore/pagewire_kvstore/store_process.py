"""Starts, runs and stops the parts of a KV store's process."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
from prometheus_client import REGISTRY

from pagewire_kvstore.adapters.content_service import SERVICE_NAMES, AdapterBlobService
from pagewire_kvstore.adapters.create import create_keeper
from pagewire_kvstore.blocks.event_log import EventLog
from pagewire_kvstore.blocks.leases import Leases
from pagewire_kvstore.blocks.tenants import Tenants
from pagewire_kvstore.config import KvStoreConfig
from pagewire_kvstore.service import SERVICE_NAME, KvStoreService, add_service
from pagewire_kvstore.store.create import TierSettings, create_store
from pagewire_kvstore.store.watch import TierWatch
from pagewire_kvstore.streams.limits import StoreStreamLimits
from pagewire_shared.errors import StartupError
from pagewire_shared.kv.arena_folder import (
    DEFAULT_FOLDER,
    arena_facts,
    free_bytes,
    is_in_memory,
    new_arena_path,
    remove_stale,
)
from pagewire_shared.process import collector
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc.address import Address, parse_address
from pagewire_shared.rpc.options import kv_server_options
from pagewire_shared.rpc.server import RpcServer, start_server

_logger = logging.getLogger(__name__)

OFF = "off"
_PREFIX = "pagewire-kv-"

STOP_GRACE_SECONDS = 0.5
WRITE_SECONDS = 5.0
"""Longest wait at the end for blocks that are queued for a slower tier."""

_MAX_EVENTS = 100_000
_MAX_LEASES = 4096
_MAX_LEASE_SECONDS = 600.0
_MAX_PINNED = 64 * 1024
_MAX_FIRST_LEASE = 2**62


async def serve(config: KvStoreConfig, context: ProcessContext) -> None:
    """Serve on `config.listen` until `context.stop` is set.

    Raises:
        StartupError: The address is taken, or memory or disk is not available.
    """
    address = parse_address(config.listen, setting="--listen")
    events = EventLog(_MAX_EVENTS)
    first_id = 1 + secrets.randbelow(_MAX_FIRST_LEASE)
    leases = Leases(_MAX_LEASES, _MAX_LEASE_SECONDS, _MAX_PINNED, first_id)
    tenants = config.tenants()
    path = arena_path(config.shared_memory_path, config.memory_size)
    settings = _tier_settings(config, path, tenants)
    # Touching memory and listing a folder take seconds; signals must be handled meanwhile.
    store = await asyncio.to_thread(
        create_store, settings, is_pinned=leases.is_pinned, events=events
    )
    watch = TierWatch(store, context.status.report)
    tasks = [asyncio.create_task(store.run()), asyncio.create_task(watch.run())]
    REGISTRY.register(watch)
    try:
        limits = StoreStreamLimits(
            stall_seconds=config.stall_seconds, max_put_bytes=config.put_buffer_size
        )
        shared = None if path is None else arena_facts(path)
        service = KvStoreService(
            store=store,
            events=events,
            leases=leases,
            tenants=tenants,
            limits=limits,
            shared=shared,
        )
        async with _keeping_adapters(config, limits) as adapters:
            server = await _started(address, service, adapters)
            context.status.report("listening", address=str(server.address))
            collector.freeze_gc()
            await _serve_until_stopped(server, context, tasks)
            context.status.report("stopping")
            await server.stop(STOP_GRACE_SECONDS)
        await _wait(store.wait_written())
    finally:
        REGISTRY.unregister(watch)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(store.close)


@contextlib.asynccontextmanager
async def _keeping_adapters(
    config: KvStoreConfig, limits: StoreStreamLimits
) -> AsyncIterator[AdapterBlobService]:
    """Keep adapters while inside, on the disk that the store has locked, or in memory."""
    disk_path = None if config.disk_path is None else Path(config.disk_path)
    keeper = await asyncio.to_thread(create_keeper, disk_path, config.max_adapter_bytes)
    try:
        yield AdapterBlobService(keeper, limits)
    finally:
        await asyncio.to_thread(keeper.close)


async def _started(
    address: Address, service: KvStoreService, adapters: AdapterBlobService
) -> RpcServer:
    def register(server: grpc.aio.Server) -> None:
        add_service(service, server)
        adapters.add_to(server)

    names = [SERVICE_NAME, *SERVICE_NAMES]
    return await start_server(
        address, register, names, setting="--listen", options=kv_server_options()
    )


def _tier_settings(config: KvStoreConfig, path: Path | None, tenants: Tenants) -> TierSettings:
    return TierSettings(
        memory_bytes=config.memory_size,
        shared_memory_path=path,
        disk_path=None if config.disk_path is None else Path(config.disk_path),
        disk_bytes=None if config.disk_path is None else config.disk_size,
        redis_url=config.redis,
        quota=tenants.quota,
    )


async def _serve_until_stopped(
    server: RpcServer, context: ProcessContext, tasks: Sequence[asyncio.Task[None]]
) -> None:
    """Serve until `context.stop` is set, or one of the tasks fails."""
    await server.set_serving(True)
    context.status.report("ready")
    stopped = asyncio.create_task(context.stop.wait())
    pending: set[asyncio.Task[Any]] = {stopped, *tasks}
    try:
        while stopped in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        stopped.cancel()


async def _wait(written: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(WRITE_SECONDS):
            await written
    except TimeoutError:
        _logger.warning("some blocks did not get to slower tiers in %g seconds", WRITE_SECONDS)


def arena_path(setting: str | None, num_bytes: int) -> Path | None:
    """Return a new path for an arena; None when the memory is to be private.

    Args:
        setting: A folder, "off", or None for the host's own folder if it is in memory and has
            enough room.

    Raises:
        StartupError: The path is not a folder.
    """
    if setting == OFF:
        return None
    folder = DEFAULT_FOLDER if setting is None else Path(setting)
    if setting is None and not is_in_memory(folder):
        return None
    if not folder.is_dir():
        raise StartupError(
            f"--shared-memory-path: {folder} is no folder", field="shared_memory_path"
        )
    remove_stale(folder, _PREFIX)
    num_free = free_bytes(folder)
    if setting is None and num_free < num_bytes:
        _logger.warning(
            "no shared memory: %s has %d bytes free and %d are needed; peers of this host send"
            " blocks over gRPC (--shared-memory-path off says that this is meant)",
            folder,
            num_free,
            num_bytes,
        )
        return None
    return new_arena_path(folder, _PREFIX)
