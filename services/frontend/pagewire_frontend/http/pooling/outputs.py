"""POST /pooling and /classify: vectors, vectors of single tokens, and classes of inputs."""

import base64
import time
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.engine.embedding import Embeddings, Vector, embed
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.engine.pooling_task import PoolTask, default_task, pooling_requests
from pagewire_frontend.engine.scoring import activated
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.chat_turns import chat_turns
from pagewire_frontend.http.openai.options import prompts_of
from pagewire_frontend.http.openai.schemas import body_schema
from pagewire_frontend.http.pooling.schemas import ClassifyBody, PoolingBody
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import ChatPrompt, GenerationRequest, Prompt
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import mint_request_id
from pagewire_shared.sampling.pooling import PoolingParams


def make_router(engine: Engine, *, bodies: Bodies) -> APIRouter:
    """Return the endpoints."""
    router = APIRouter()

    @router.post("/pooling", openapi_extra=body_schema(PoolingBody))
    async def pooling(request: Request) -> Response:
        """Compute vectors, vectors of single tokens, or classes."""
        body = await bodies.read(request, PoolingBody)
        model = engine.models.find(body.model)
        task = default_task(model) if body.task is None else PoolTask(body.task)
        params = PoolingParams(
            normalize=body.normalize,
            dimensions=body.dimensions,
            truncate_prompt_tokens=body.truncate_prompt_tokens,
        )
        asked = _requests(model, body, task, params)
        found = await while_connected(request, embed(engine, asked))
        rows = found.vectors
        if task is PoolTask.CLASSIFY:
            rows = [activated(row, model, body.is_activated) for row in rows]
        is_text = body.encoding_format == "base64"
        data = [
            {"index": index, "object": "pooling", "data": _formatted(row, is_text)}
            for index, row in enumerate(rows)
        ]
        return json_response(_answer("pool", model.shown_name, data, found))

    @router.post("/classify", openapi_extra=body_schema(ClassifyBody))
    async def classify(request: Request) -> Response:
        """Classify inputs."""
        body = await bodies.read(request, ClassifyBody)
        model = engine.models.find(body.model)
        params = PoolingParams(truncate_prompt_tokens=body.truncate_prompt_tokens)
        asked = _requests(model, body, PoolTask.CLASSIFY, params)
        found = await while_connected(request, embed(engine, asked))
        data = [
            _classified(index, activated(row, model, body.is_activated), model)
            for index, row in enumerate(found.vectors)
        ]
        return json_response(_answer("classify", model.shown_name, data, found))

    return router


def _requests(
    model: LoadedModel, body: ClassifyBody, task: PoolTask, params: PoolingParams
) -> list[GenerationRequest]:
    return pooling_requests(
        model,
        _inputs(body),
        task,
        params,
        tenant=current_tenant(),
        cache_salt=body.cache_salt,
        priority=body.priority or 0,
    )


def _inputs(body: ClassifyBody) -> list[Prompt]:
    if (body.input is None) == (body.messages is None):
        raise InvalidRequestError("exactly one of input and messages is required", field="input")
    if body.messages is not None:
        return [ChatPrompt(chat_turns(body.messages), add_generation_prompt=False)]
    assert body.input is not None
    return prompts_of(body.input, body.add_special_tokens is not False, field="input")


def _classified(index: int, probabilities: Vector, model: LoadedModel) -> dict[str, Any]:
    return {
        "index": index,
        "label": model.tasks.labels[int(np.argmax(probabilities))],
        "probs": probabilities.tolist(),
        "num_classes": len(probabilities),
    }


def _formatted(values: Vector, is_text: bool) -> str | list[Any]:
    if is_text:
        return base64.b64encode(values.astype("<f4").tobytes()).decode()
    numbers: list[Any] = values.tolist()
    return numbers


def _answer(kind: str, model: str, data: list[dict[str, Any]], found: Embeddings) -> dict[str, Any]:
    tokens = found.usage.prompt_tokens
    return {
        "id": f"{kind}-{mint_request_id().hex()}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": data,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, **found.usage.version_fields},
    }
