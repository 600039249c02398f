"""Endpoints about the frontend itself, for clients and orchestrators: models, health, version."""

import time
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Response

from pagewire_frontend.adapters.registry import NamedAdapter
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_shared.errors import UnavailableError
from pagewire_shared.process.metrics import package_version


@dataclass(slots=True)
class GrpcPort:
    """The port of the gRPC API of this process; None until it is bound, and without one."""

    number: int | None = None


def make_router(engine: Engine, grpc_port: GrpcPort) -> APIRouter:
    """Return the endpoints that generate nothing."""
    router = APIRouter()
    started = int(time.time())

    def describe(model: LoadedModel, name: str) -> dict[str, Any]:
        body = {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "pagewire",
            "root": model.name,
        }
        length = engine.context_length(model)
        return body if length is None else {**body, "max_model_len": length}

    def describe_adapter(adapter: NamedAdapter) -> dict[str, Any]:
        base = describe(engine.models.find(adapter.base_model), adapter.name)
        parts = {"created": adapter.loaded_at, "root": adapter.path, "parent": adapter.base_model}
        return {**base, **parts}

    @router.get("/v1/models")
    async def list_models() -> Response:
        """List the models that can be asked for."""
        data = [describe(m, name) for m in engine.models for name in (m.name, *m.aliases)]
        data += map(describe_adapter, engine.models.adapters)
        return json_response({"object": "list", "data": data})

    @router.get("/v1/models/{model_id:path}")
    async def get_model(model_id: str) -> Response:
        """Describe one model; ids may hold slashes."""
        adapter = engine.models.adapters.find(model_id)
        if adapter is not None:
            return json_response(describe_adapter(adapter))
        return json_response(describe(engine.models.find(model_id), model_id))

    @router.post("/ping")
    @router.get("/ping")
    @router.get("/ready")
    @router.get("/health")
    async def health() -> Response:
        """200 when a request would be answered now, else 503 with the reason."""
        reason = engine.why_not_ready()
        if reason is not None:
            raise UnavailableError(reason)
        return json_response({"status": "ok"})

    @router.get("/live")
    async def live() -> Response:
        """200 while the event loop turns, whatever happens to other processes."""
        return json_response({"status": "ok"})

    @router.get("/version")
    async def version() -> Response:
        """Return the version of the server, and its gRPC port for commands that need it."""
        port = {} if grpc_port.number is None else {"grpc_port": grpc_port.number}
        return json_response({"version": package_version(), **port})

    return router
