"""The life of a frontend: models, links, servers, readiness, and an orderly end. Wires the parts
together."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

from pagewire_frontend import grpc_service
from pagewire_frontend.api_keys import ApiKeys
from pagewire_frontend.config import FrontendConfig, grpc_setting
from pagewire_frontend.engine import Engine, EngineLimits
from pagewire_frontend.http.app import Access, make_app
from pagewire_frontend.http.server import HttpServer
from pagewire_frontend.journal import Journal
from pagewire_frontend.key_interceptor import KeyInterceptor
from pagewire_frontend.model_registry import ModelRegistry, load_model, parse_specs
from pagewire_frontend.scheduler_link import LinkSettings
from pagewire_frontend.scheduler_pool import SchedulerPool
from pagewire_shared.ids import mint_id
from pagewire_shared.process import ProcessContext
from pagewire_shared.rpc.server import RpcServer, start_server

_logger = logging.getLogger(__name__)


async def serve(config: FrontendConfig, context: ProcessContext) -> None:
    """Run a frontend until `context.stop` is set. Raises StartupError."""
    addresses = config.scheduler_addresses
    models = _load_models(config)
    journal = Journal()
    settings = LinkSettings(
        frontend_id=mint_id(),
        fingerprints={model.name: model.tokenizer_fingerprint for model in models},
        silence_seconds=config.silence_seconds,
        lease_seconds=config.lease_seconds,
    )
    pool = SchedulerPool(addresses, settings, journal, max_waiting=config.max_waiting)
    limits = EngineLimits(
        max_open_requests=config.max_open_requests,
        max_request_seconds=config.max_request_seconds,
        max_wait_seconds=config.max_wait_seconds,
    )
    engine = Engine(models, pool, journal, limits)
    async with _servers(config, engine, pool) as (rpc, http):
        context.status.report(
            "listening",
            address=str(rpc.address),
            grpc=str(rpc.address),
            http=str(http.address) if http is not None else None,
        )
        tasks = [
            asyncio.create_task(pool.run()),
            asyncio.create_task(_watch_readiness(engine, pool, rpc, context)),
        ]
        if http is not None:
            tasks.append(asyncio.create_task(http.run()))
        await _until_stopped(context, tasks)
        context.status.report("stopping")
        ends = [rpc.stop(config.grace_seconds)]
        if http is not None:
            ends.append(http.stop())
        await asyncio.gather(*ends)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    engine.shutdown()


def _load_models(config: FrontendConfig) -> ModelRegistry:
    started = time.monotonic()
    specs = parse_specs(config.model, config.served_model_name)
    models = [load_model(spec) for spec in specs]
    names = ", ".join(model.name for model in models)
    _logger.info("read tokenizers of %s in %.2f s", names, time.monotonic() - started)
    return ModelRegistry(models)


@contextlib.asynccontextmanager
async def _servers(
    config: FrontendConfig, engine: Engine, pool: SchedulerPool
) -> AsyncIterator[tuple[RpcServer, HttpServer | None]]:
    http = None
    keys = ApiKeys(config.api_key, Path(config.api_key_file) if config.api_key_file else None)
    if config.http:
        http = HttpServer(
            make_app(
                engine,
                max_body_bytes=config.max_body_size,
                access=Access(keys=keys, cors_origins=config.cors_origin),
            ),
            config.http_address,
            grace_seconds=config.grace_seconds,
            limits=config.connection_limits,
        )
    try:
        rpc = await start_server(
            config.grpc_address,
            lambda server: grpc_service.register(server, engine, pool),
            grpc_service.SERVICE_NAMES,
            setting=grpc_setting(config),
            interceptors=[KeyInterceptor(keys)] if keys.are_required else [],
        )
        yield rpc, http
    finally:
        if http is not None:
            http.close()


async def _watch_readiness(
    engine: Engine, pool: SchedulerPool, rpc: RpcServer, context: ProcessContext
) -> None:
    """Keep health checks true, and tell the parent when the first request would be answered."""
    is_ready = has_reported = False

    def has_turned() -> bool:
        return (engine.why_not_ready() is None) is not is_ready

    while True:
        await pool.wait_until(has_turned)
        is_ready = not is_ready
        await rpc.set_serving(is_ready)
        if not is_ready:
            _logger.warning("not ready: %s", engine.why_not_ready())
        elif not has_reported:
            has_reported = True
            context.status.report("ready", models=[model.name for model in engine.models])


async def _until_stopped(context: ProcessContext, tasks: list["asyncio.Task[None]"]) -> None:
    stop = asyncio.create_task(context.stop.wait())
    done, _ = await asyncio.wait([stop, *tasks], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    for task in done:
        task.result()
