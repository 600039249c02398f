"""The gateway's application: routes, and what every exchange passes before them."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.types import ASGIApp

from pagewire_frontend.api_keys import ApiKeys
from pagewire_frontend.engine import Engine
from pagewire_frontend.http import embeddings, generation, information, tokenization
from pagewire_frontend.http.access import Cors, KeyMiddleware
from pagewire_frontend.http.description import install_description
from pagewire_frontend.http.error_handlers import install_handlers
from pagewire_frontend.http.methods import MethodsMiddleware
from pagewire_frontend.http.request_id import RequestIdMiddleware


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may call.

    Attributes:
        keys: API keys.
        cors_origins: Origins whose pages may call; "*" for all.
    """

    keys: ApiKeys
    cors_origins: Sequence[str] = ()


def make_app(engine: Engine, *, max_body_bytes: int, access: Access) -> ASGIApp:
    """Return the application."""
    app = FastAPI(title="Pagewire", openapi_url=None, docs_url=None, redirect_slashes=False)
    install_handlers(app)
    app.include_router(generation.make_router(engine, max_body_bytes=max_body_bytes))
    app.include_router(embeddings.make_router(engine, max_body_bytes=max_body_bytes))
    app.include_router(tokenization.make_router(engine, max_body_bytes=max_body_bytes))
    app.include_router(information.make_router(engine))
    install_description(app, are_keys_required=access.keys.are_required)
    return _guarded(app, access)


def _guarded(app: FastAPI, access: Access) -> ASGIApp:
    """Return the app behind what every exchange passes, also one that fails inside."""
    guarded: ASGIApp = MethodsMiddleware(app, app.routes)
    if access.keys.are_required:
        guarded = KeyMiddleware(guarded, access.keys)
    if access.cors_origins:
        # Before the keys: a browser asks without one whether it may send one.
        guarded = Cors(guarded, access.cors_origins)
    return RequestIdMiddleware(guarded)
