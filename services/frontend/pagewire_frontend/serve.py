"""Runs a frontend: wires models, links and servers together, watches readiness and drains at the
end."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
from starlette.types import ASGIApp

from pagewire_frontend.access.api_keys import ApiKeys
from pagewire_frontend.access.key_usage import KeyUsages
from pagewire_frontend.access.public_tls import PublicTls, public_guard, public_tls
from pagewire_frontend.adapter_start import allowed_paths, make_adapters, serving_adapters
from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.adapters.folder_watch import FolderWatch
from pagewire_frontend.config import FrontendConfig, grpc_setting
from pagewire_frontend.engine.engine import Engine, EngineLimits
from pagewire_frontend.group.group import Group, joined
from pagewire_frontend.group.membership import parse_membership
from pagewire_frontend.grpc_api import service as grpc_service
from pagewire_frontend.grpc_api.call_counter import CallCounter
from pagewire_frontend.grpc_api.kept_calls import CallStreams
from pagewire_frontend.grpc_api.key_interceptor import KeyInterceptor
from pagewire_frontend.http.app import Access, make_app
from pagewire_frontend.http.kept_streams.keyed_streams import KeyedStreams
from pagewire_frontend.http.kept_streams.local_streams import JournalLimits, LocalStreams
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.information import GrpcPort
from pagewire_frontend.http.openai.streams import Streams
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.responses.store import StoreLimits
from pagewire_frontend.http.server.metrics import MetricsMiddleware
from pagewire_frontend.http.server.server import HttpServer
from pagewire_frontend.message.formats import parse_formats
from pagewire_frontend.metrics import requests as metrics
from pagewire_frontend.metrics.adapters import note_load, show_adapters
from pagewire_frontend.metrics.load import show_loads
from pagewire_frontend.metrics.vllm_names import VLLM_NAMES
from pagewire_frontend.models.model_options import ModelOptions, parse_aliases
from pagewire_frontend.models.model_registry import ModelRegistry, load_model, parse_specs
from pagewire_frontend.scheduler.link import LinkSettings
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.session.journal import Journal
from pagewire_frontend.takeover_start import make_take_over
from pagewire_frontend.trace_start import make_traces
from pagewire_shared.errors import StartupError
from pagewire_shared.identity.ids import mint_id
from pagewire_shared.identity.model_files import find_files
from pagewire_shared.process import collector
from pagewire_shared.process.metrics import show_build
from pagewire_shared.process.process import ProcessContext
from pagewire_shared.rpc import links
from pagewire_shared.rpc.server import RpcServer, start_server
from pagewire_shared.security.roles import LinkRole

_logger = logging.getLogger(__name__)

HOLD_BACK_SECONDS = 5.0
"""Most that a process which shares its ports waits for a worker before it takes connections."""

FAREWELL_SECONDS = 1.0
"""Time for the error that ends requests which are still open after the drain."""


async def serve(config: FrontendConfig, context: ProcessContext) -> None:
    """Run a frontend until `context.stop` is set. Raises StartupError."""
    membership = parse_membership(config.frontend_name, config.peer)
    _check_certificate(config.frontend_name)
    engine, pool = _make_engine(config, keys := _api_keys(config))
    _introduce_metrics(config, engine)
    engine.traces, close_traces = make_traces(config)
    streams = _make_streams(config, membership.tag)
    responses = _make_responses(config, engine, membership.tag, streams)
    group = joined(
        membership,
        responses,
        streams,
        engine.models.adapters,
        history=engine.history,
        listen=config.peer_address,
        peer_seconds=config.peer_seconds,
        num_replicas=config.stream_replicas,
    )
    adapters = serving_adapters(config, engine.models.adapters)
    try:
        async with adapters as watch, group as members, _running(pool.run()) as attached:
            await engine.start()
            if config.shared_ports:
                await _hold_back(engine, pool, context)
            async with (
                _servers(config, keys, engine, pool, members, responses, streams) as (rpc, http),
                _watching(watch),
            ):
                service = _Service(engine=engine, pool=pool, streams=streams, rpc=rpc, http=http)
                await _serve_until_stopped(config, context, attached, service)
    finally:
        streams.close()
        engine.shutdown()
        close_traces()


def _check_certificate(name: str) -> None:
    """Raise StartupError if the certificate is bound to another frontend than the one named."""
    instance = links.own_instance(LinkRole.FRONTEND)
    if name and instance and name.lower() != instance:
        raise StartupError(
            f"--frontend-name: the certificate in --tls-dir is bound to {instance!r}, not {name!r}",
            field="frontend_name",
        )


def _make_engine(config: FrontendConfig, keys: ApiKeys) -> tuple[Engine, SchedulerPool]:
    addresses = config.scheduler_addresses
    models = _load_models(config)
    journal = Journal()
    settings = LinkSettings(
        frontend_id=mint_id(),
        fingerprints={model.name: model.tokenizer_fingerprint for model in models},
        silence_seconds=config.silence_seconds,
        lease_seconds=config.lease_seconds,
        cache_bytes_of=keys.cache_bytes_of,
    )
    pool = SchedulerPool(addresses, settings, journal, max_waiting=config.max_waiting)
    models.adapters.known_rank = pool.known_rank
    models.adapters.fits.known_shapes = pool.known_shapes
    models.adapters.on_load = note_load
    limits = EngineLimits(
        max_open_requests=config.max_open_requests,
        max_request_seconds=config.max_request_seconds,
        max_wait_seconds=config.max_wait_seconds,
        max_text_chars=config.max_body_size,
        max_text_bytes=config.max_waiting_text_bytes,
    )
    return Engine(models, pool, journal, limits), pool


def _introduce_metrics(config: FrontendConfig, engine: Engine) -> None:
    show_build("frontend")
    VLLM_NAMES.is_on = config.vllm_metrics
    for model in engine.models:
        metrics.introduce(model.name)


def _make_responses(
    config: FrontendConfig, engine: Engine, tag: str, streams: LocalStreams
) -> LocalResponses:
    limits = StoreLimits(
        max_responses=config.max_stored_responses,
        max_bytes=config.max_stored_response_bytes,
        max_seconds=config.max_stored_response_seconds,
    )
    return LocalResponses(engine, tag, limits, streams)


def _make_streams(config: FrontendConfig, tag: str) -> LocalStreams:
    limits = JournalLimits(
        retention_seconds=config.stream_retention_seconds, max_bytes=config.stream_journal_bytes
    )
    return LocalStreams(tag, limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """What a frontend serves with, and what ends when it stops."""

    engine: Engine
    pool: SchedulerPool
    streams: LocalStreams
    rpc: RpcServer
    http: HttpServer | None

    def give_up(self) -> None:
        """End what is still open with an error; other frontends may go on with it."""
        self.streams.expect_end()
        self.engine.give_up()


async def _serve_until_stopped(
    config: FrontendConfig,
    context: ProcessContext,
    attached: "asyncio.Task[None]",
    service: _Service,
) -> None:
    engine, pool, rpc, http = service.engine, service.pool, service.rpc, service.http
    context.status.report(
        "listening",
        address=str(rpc.address),
        grpc=str(rpc.address),
        http=str(http.address) if http is not None else None,
    )
    collector.freeze_gc()
    async with contextlib.AsyncExitStack() as stack:
        names = [model.name for model in engine.models]
        works = [
            _watch_readiness(engine, pool, rpc, context),
            show_loads(pool, names, lambda: engine.why_not_ready() is None),
            engine.models.adapters.check_late(pool.wait_until),
            show_adapters(engine.models.adapters, engine.used_adapters, pool.num_adapter_slots),
        ]
        if http is not None:
            works.append(http.run())
        tasks = [await stack.enter_async_context(_running(work)) for work in works]
        await _until_stopped(context, [attached, *tasks])
        context.status.report("draining")
        await _drain(config.drain_seconds, service)
        context.status.report("stopping")


async def _drain(seconds: float, service: _Service) -> None:
    """Take nothing new, and let open requests go on for `seconds`; the rest then ends with an
    error."""
    service.engine.drain()
    late = asyncio.get_running_loop().call_later(seconds, service.give_up)
    ends = [service.rpc.stop(seconds + FAREWELL_SECONDS)]
    if service.http is not None:
        ends.append(service.http.stop())
    await asyncio.gather(*ends)
    late.cancel()


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator["asyncio.Task[None]"]:
    """Run a task while inside."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.asynccontextmanager
async def _watching(watch: FolderWatch | None) -> AsyncIterator[None]:
    """Look after the folder of adapters while inside, if there is one."""
    if watch is None:
        yield
        return
    async with _running(watch.run()):
        yield


async def _hold_back(engine: Engine, pool: SchedulerPool, context: ProcessContext) -> None:
    """Wait until a request would be answered, at most HOLD_BACK_SECONDS."""
    waits = [
        asyncio.ensure_future(pool.wait_until(lambda: engine.why_not_ready() is None)),
        asyncio.ensure_future(context.stop.wait()),
    ]
    await asyncio.wait(waits, timeout=HOLD_BACK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


def _load_models(config: FrontendConfig) -> ModelRegistry:
    started = time.monotonic()
    specs = parse_specs(config.model, config.served_model_name)
    choice = parse_formats(
        config.tool_call_parser,
        config.reasoning_parser,
        config.tool_parser_plugin,
        [spec.name for spec in specs],
    )
    options = _model_options(config, [spec.name for spec in specs])
    models = [
        load_model(spec, choice, options, find_files(config, spec.path, has_weights=False))
        for spec in specs
    ]
    names = ", ".join(model.name for model in models)
    _logger.info("read tokenizers of %s in %.2f s", names, time.monotonic() - started)
    taken = [name for model in models for name in (model.name, *model.aliases)]
    adapters = make_adapters(config, [model.name for model in models], taken)
    return ModelRegistry(models, adapters)


def _model_options(config: FrontendConfig, names: list[str]) -> ModelOptions:
    overrides = config.override_generation_config
    return ModelOptions(
        chat_template=config.chat_template,
        generation_config=config.generation_config,
        generation_overrides=json.loads(overrides) if overrides else {},
        aliases=parse_aliases(config.model_alias, names),
        max_logprobs=config.max_logprobs,
        has_tokenizer=not config.skip_tokenizer_init,
    )


def _access(config: FrontendConfig, keys: ApiKeys) -> Access:
    return Access(
        keys=keys, cors_origins=config.cors_origin, protects_metrics=config.protect_metrics
    )


def _api_keys(config: FrontendConfig) -> ApiKeys:
    usages = KeyUsages(config.max_open_requests, config.max_open_per_key or None)
    file = Path(config.api_key_file) if config.api_key_file else None
    return ApiKeys(config.api_key, file, usages=usages)


def _http_server(config: FrontendConfig, app: ASGIApp, tls: PublicTls | None) -> HttpServer:
    return HttpServer(
        MetricsMiddleware(app),
        config.http_address,
        grace_seconds=config.drain_seconds + FAREWELL_SECONDS,
        limits=config.connection_limits,
        is_port_shared=config.shared_ports,
        tls=tls,
    )


def _interceptors(keys: ApiKeys) -> list[grpc.aio.ServerInterceptor]:
    # The counter comes first, so that refused keys are counted, too.
    counter = CallCounter(grpc_service.SERVICE_NAMES)
    return [counter, KeyInterceptor(keys)] if keys.are_required else [counter]


@contextlib.asynccontextmanager
async def _servers(
    config: FrontendConfig,
    keys: ApiKeys,
    engine: Engine,
    pool: SchedulerPool,
    group: Group,
    responses: LocalResponses,
    streams: LocalStreams,
) -> AsyncIterator[tuple[RpcServer, HttpServer | None]]:
    http, grpc_port = None, GrpcPort()
    bodies, tls = Bodies(config.max_body_size), public_tls(config)
    adapters = AdapterCalls(engine.models.adapters, allowed_paths(config), group.peers)
    group.held.take_over = make_take_over(engine, streams, responses, group.recipes, bodies, keys)
    if config.http:
        keyed = KeyedStreams(streams, group.streams, group.keys)
        app = make_app(
            engine,
            responses,
            bodies=bodies,
            access=_access(config, keys),
            exposition=group.metrics.exposition,
            directory=group.responses,
            streams=Streams(streams, keyed, group.recipes),
            kept_streams=group.streams,
            grpc_port=grpc_port,
            adapters=adapters,
            pool=pool,
            profiler_dir=config.profiler_dir,
        )
        http = _http_server(config, app, tls)
    kept = CallStreams(streams, group.streams, group.keys, group.recipes)
    register = partial(grpc_service.register, peers=group.peers, stall_seconds=config.stall_seconds)
    try:
        rpc = await start_server(
            config.grpc_address,
            lambda server: register(server, engine, pool, adapters, kept, config.weights_inbox),
            grpc_service.SERVICE_NAMES,
            setting=grpc_setting(config),
            is_port_shared=config.shared_ports,
            public=public_guard(tls),
            interceptors=_interceptors(keys),
        )
        grpc_port.number = None if rpc.address.is_unix else rpc.address.port
        yield rpc, http
    finally:
        bodies.close()
        if http is not None:
            http.close()


async def _watch_readiness(
    engine: Engine, pool: SchedulerPool, rpc: RpcServer, context: ProcessContext
) -> None:
    """Keep health checks true, and report the first readiness to the parent."""
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
