"""Serves GET /state: the models, their workers, and the open requests that the caller may see."""

from typing import Any

from fastapi import APIRouter, Response

from pagewire_frontend.access.api_keys import current_caller
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_shared.process.metrics import package_version


def make_router(engine: Engine) -> APIRouter:
    """Return the endpoint."""
    router = APIRouter()

    def describe(model: LoadedModel) -> dict[str, Any]:
        return {
            "id": model.name,
            "is_ready": engine.is_ready(model),
            "num_workers": engine.num_workers(model),
            "max_model_len": engine.context_length(model),
            "has_chat_template": model.chat_template is not None,
        }

    @router.get("/state")
    async def state() -> Response:
        """State of the cell as this frontend knows it; open requests are the key's own, and all of
        this frontend for a key with `admin` and without keys."""
        caller = current_caller()
        if caller is None or caller.key.is_admin:
            num_open = engine.num_open
        else:
            num_open = caller.usage.num_streams
        models = {model.name: model for model, _ in engine.models.usable()}
        body = {
            "version": package_version(),
            "why_not_ready": engine.why_not_ready(),
            "num_open_requests": num_open,
            "models": [describe(model) for model in models.values()],
        }
        return json_response(body)

    return router
