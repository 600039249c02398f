"""POST /v1/embeddings: turns texts, token ids or a conversation into vectors, as numbers or as
base64 of little-endian f32, which OpenAI's Python client asks for."""

import base64
import time
from typing import Any

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.engine.embedding import Embeddings, Vector, embed, embed_requests
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.chat_turns import chat_turns
from pagewire_frontend.http.openai.options import prompts_of
from pagewire_frontend.http.openai.schemas import EmbeddingBody, body_schema
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.prompts.generation_request import ChatPrompt, Prompt
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import mint_request_id
from pagewire_shared.sampling.pooling import PoolingParams


def make_router(engine: Engine, *, bodies: Bodies) -> APIRouter:
    """Return the endpoint."""
    router = APIRouter()

    @router.post("/v1/embeddings", openapi_extra=body_schema(EmbeddingBody))
    async def embeddings(request: Request) -> Response:
        """Turn inputs into vectors."""
        body = await bodies.read(request, EmbeddingBody)
        model = engine.models.find(body.model)
        asked = embed_requests(
            model,
            _inputs(body),
            _pooling(body),
            tenant=current_tenant(),
            cache_salt=body.cache_salt,
            priority=body.priority or 0,
        )
        outcome = await while_connected(request, embed(engine, asked))
        is_text = body.encoding_format == "base64"
        return json_response(_answer(model.shown_name, outcome, is_text=is_text))

    return router


def _inputs(body: EmbeddingBody) -> list[Prompt]:
    if (body.input is None) == (body.messages is None):
        raise InvalidRequestError("exactly one of input and messages is required", field="input")
    if body.messages is not None:
        return [ChatPrompt(chat_turns(body.messages), add_generation_prompt=False)]
    assert body.input is not None
    return prompts_of(body.input, body.add_special_tokens is not False, field="input")


def _pooling(body: EmbeddingBody) -> PoolingParams:
    return PoolingParams(
        pooling=body.pooling,
        normalize=body.normalize,
        dimensions=body.dimensions,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
    )


def _answer(model: str, outcome: Embeddings, *, is_text: bool) -> dict[str, Any]:
    tokens = outcome.usage.prompt_tokens
    return {
        "id": f"embd-{mint_request_id().hex()}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            {"object": "embedding", "index": index, "embedding": _format_vector(vector, is_text)}
            for index, vector in enumerate(outcome.vectors)
        ],
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens, **outcome.usage.version_fields},
    }


def _format_vector(vector: Vector, is_text: bool) -> str | list[float]:
    if is_text:
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
