"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, in vLLM's form.

Statuses and texts are those of vLLM (vllm/entrypoints/openai/models/serving.py,
OpenAIServingModels), errors in the envelope of this gateway. A key needs the scope
`adapters`.
"""

from typing import ClassVar

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.admin_log import noted
from pagewire_frontend.adapters.calls import AdapterCalls
from pagewire_frontend.http.body_fields import StrictBody
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.schemas import body_schema
from pagewire_shared.errors import InvalidRequestError


class LoadAdapterBody(StrictBody):
    """POST /v1/load_lora_adapter."""

    WITHOUT_EFFECT_AS: ClassVar = {"is_3d_lora_weight": False}

    lora_name: str | None = None
    lora_path: str | None = None
    load_inplace: bool | None = None
    base_model_name: str | None = None
    is_3d_lora_weight: bool | None = None


class UnloadAdapterBody(StrictBody):
    """POST /v1/unload_lora_adapter; the number of an adapter says nothing here."""

    lora_name: str | None = None
    lora_int_id: int | None = None


def make_router(calls: AdapterCalls, *, bodies: Bodies) -> APIRouter:
    """Return the two endpoints."""
    router = APIRouter()

    @router.post("/v1/load_lora_adapter", openapi_extra=body_schema(LoadAdapterBody))
    async def load_lora_adapter(request: Request) -> Response:
        """Load an adapter under a name."""
        body = await bodies.read(request, LoadAdapterBody)
        name, path = body.lora_name, body.lora_path
        with noted("LoadAdapter", {"name": name, "path": path}):
            if not name or not path:
                raise InvalidRequestError(
                    "Both 'lora_name' and 'lora_path' must be provided.",
                    field="lora_path" if name else "lora_name",
                )
            await calls.load(
                name,
                path,
                base_model=body.base_model_name or "",
                is_in_place=body.load_inplace or False,
            )
        return _said(f"Success: LoRA adapter '{name}' added successfully.")

    @router.post("/v1/unload_lora_adapter", openapi_extra=body_schema(UnloadAdapterBody))
    async def unload_lora_adapter(request: Request) -> Response:
        """Forget the name of an adapter; open streams go on."""
        body = await bodies.read(request, UnloadAdapterBody)
        with noted("UnloadAdapter", {"name": body.lora_name}):
            if not body.lora_name:
                raise InvalidRequestError(
                    "'lora_name' needs to be provided to unload a LoRA adapter.", field="lora_name"
                )
            await calls.unload(body.lora_name)
        return _said(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    return router


def _said(text: str) -> Response:
    return Response(text, media_type="text/plain")
