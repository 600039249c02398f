"""Builds the gateway's application: routes, and the middleware that every HTTP request passes."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.types import ASGIApp

from pagewire_frontend.access.api_keys import ApiKeys
from pagewire_frontend.access.scopes import require_listed
from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.description import install_description
from pagewire_frontend.http.kept_streams import endpoints as kept_endpoints
from pagewire_frontend.http.kept_streams.directory import StreamDirectory
from pagewire_frontend.http.openai import (
    embeddings,
    generation,
    information,
    lora,
    tokenization,
)
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.streams import Streams
from pagewire_frontend.http.operators import profiles, workers
from pagewire_frontend.http.page import routes as page
from pagewire_frontend.http.page import state
from pagewire_frontend.http.pooling import outputs, scores
from pagewire_frontend.http.responses import endpoints as responses
from pagewire_frontend.http.responses import kept as responses_kept
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.server import metrics
from pagewire_frontend.http.server.access import Cors, KeyMiddleware
from pagewire_frontend.http.server.errors import install_handlers
from pagewire_frontend.http.server.ignored_fields import IgnoredFieldsMiddleware
from pagewire_frontend.http.server.methods import MethodsMiddleware
from pagewire_frontend.http.server.request_id import RequestIdMiddleware
from pagewire_frontend.scheduler.inspection_link import ProfileCalls
from pagewire_frontend.scheduler.pool import SchedulerPool
from pagewire_frontend.scheduler.sleep_link import SleepCalls
from pagewire_frontend.scheduler.weights_link import WeightsCalls


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Access rules of the gateway.

    Attributes:
        cors_origins: Origins whose pages may call; "*" for all.
        protects_metrics: GET /metrics needs a key with the scope for it, where there are keys.
    """

    keys: ApiKeys
    cors_origins: Sequence[str] = ()
    protects_metrics: bool = False


def make_app(
    engine: Engine,
    kept: LocalResponses,
    *,
    bodies: Bodies,
    access: Access,
    exposition: Callable[[bool], Awaitable[str]],
    directory: ResponseDirectory,
    streams: Streams,
    kept_streams: StreamDirectory,
    grpc_port: information.GrpcPort,
    adapters: AdapterCalls,
    pool: SchedulerPool,
    profiler_dir: str = "",
) -> ASGIApp:
    """Return the application; traces of profiles are written into `profiler_dir`."""
    app = FastAPI(title="Pagewire", openapi_url=None, docs_url=None, redirect_slashes=False)
    install_handlers(app)
    routers = [
        generation.make_router(engine, streams, kept_streams, bodies=bodies),
        kept_endpoints.make_router(kept_streams),
        embeddings.make_router(engine, bodies=bodies),
        outputs.make_router(engine, bodies=bodies),
        scores.make_router(engine, bodies=bodies),
        lora.make_router(adapters, bodies=bodies),
        workers.make_router(SleepCalls(pool), WeightsCalls(pool), bodies=bodies),
        profiles.make_router(ProfileCalls(pool), profiler_dir),
        tokenization.make_router(engine, bodies=bodies),
        responses.make_router(
            responses.ResponseTools(engine, kept, directory, streams), bodies=bodies
        ),
        responses_kept.make_router(directory),
        information.make_router(engine, grpc_port),
        metrics.make_router(exposition),
        state.make_router(engine),
        page.make_router(are_keys_required=access.keys.are_required),
    ]
    for router in routers:
        app.include_router(router)
    require_listed(str(getattr(one, "path", "")) for router in routers for one in router.routes)
    install_description(app, are_keys_required=access.keys.are_required)
    return _guarded(app, access)


def _guarded(app: FastAPI, access: Access) -> ASGIApp:
    """Return the app behind the middleware, which also handles requests that fail inside."""
    guarded: ASGIApp = MethodsMiddleware(app, app.routes)
    if access.keys.are_required:
        guarded = KeyMiddleware(guarded, access.keys, protects_metrics=access.protects_metrics)
    if access.cors_origins:
        # Before the keys: a browser's preflight request has no key.
        guarded = Cors(guarded, access.cors_origins)
    return RequestIdMiddleware(IgnoredFieldsMiddleware(guarded))
