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


class ModelDescriptions:
    """Describes models and adapters, in the form of OpenAI and vLLM."""

    def __init__(self, engine: Engine, started: int) -> None:
        """Args: `started` is in seconds since 1970."""
        self._engine = engine
        self._started = started

    def all(self) -> list[dict[str, Any]]:
        """Return the models under all their names, then the adapters: those that the key may
        use."""
        models = self._engine.models
        data = [self._model(model, name) for model, name in models.usable()]
        return [*data, *map(self._adapter, models.usable_adapters())]

    def one(self, name: str) -> dict[str, Any]:
        """Return the model or adapter of a name. Raises ModelNotFoundError."""
        model = self._engine.models.find(name)
        adapter = self._engine.models.adapters.find(name)
        return self._model(model, name) if adapter is None else self._adapter(adapter)

    def _model(self, model: LoadedModel, name: str) -> dict[str, Any]:
        body = {
            "id": name,
            "object": "model",
            "created": self._started,
            "owned_by": "pagewire",
            "root": model.name,
        }
        length = self._engine.context_length(model)
        return body if length is None else {**body, "max_model_len": length}

    def _adapter(self, adapter: NamedAdapter) -> dict[str, Any]:
        base = self._model(self._engine.models.base_of(adapter), adapter.name)
        parts = {"created": adapter.loaded_at, "root": adapter.path, "parent": adapter.base_model}
        return {**base, **parts}


def make_router(engine: Engine, grpc_port: GrpcPort) -> APIRouter:
    """Return the endpoints that generate nothing."""
    router = APIRouter()
    started = int(time.time())
    describe = ModelDescriptions(engine, started)

    @router.get("/v1/models")
    async def list_models() -> Response:
        """List the models that can be asked for."""
        return json_response({"object": "list", "data": describe.all()})

    @router.get("/v1/models/{model_id:path}")
    async def get_model(model_id: str) -> Response:
        """Describe one model; ids may hold slashes."""
        return json_response(describe.one(model_id))

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
