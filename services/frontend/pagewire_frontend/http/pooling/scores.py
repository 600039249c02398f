"""POST /score and /rerank, with their other paths: scores of pairs of texts."""

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.engine.scoring import PairFields, PairScores, PairsRequest, score
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.schemas import body_schema
from pagewire_frontend.http.pooling.schemas import DocumentBody, RerankBody, ScoreBody
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response
from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.identity.ids import mint_request_id

SCORE_PATHS = ("/score", "/v1/score")
RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
_NAMES = (("queries", "documents"), ("text_1", "text_2"), ("data_1", "data_2"))


def make_router(engine: Engine, *, bodies: Bodies) -> APIRouter:
    """Return the endpoints."""
    router = APIRouter()

    async def score_pairs(request: Request) -> Response:
        """Score pairs of texts."""
        body = await bodies.read(request, ScoreBody)
        model = engine.models.find(body.model)
        work = score(engine, model, _score_pairs(body))
        found = await while_connected(request, work)
        return json_response(_score_answer(model.shown_name, found))

    async def rerank(request: Request) -> Response:
        """Order documents by their score with a query."""
        body = await bodies.read(request, RerankBody)
        model = engine.models.find(body.model)
        found = await while_connected(request, score(engine, model, _rerank_pairs(body)))
        # Cohere's version 2 has no documents in its answer.
        has_documents = not request.url.path.startswith("/v2/")
        return json_response(_rerank_answer(model.shown_name, body, found, has_documents))

    for path in SCORE_PATHS:
        router.post(path, openapi_extra=body_schema(ScoreBody))(score_pairs)
    for path in RERANK_PATHS:
        router.post(path, openapi_extra=body_schema(RerankBody))(rerank)
    return router


def _score_pairs(body: ScoreBody) -> PairsRequest:
    names = [pair for pair in _NAMES if any(getattr(body, name) is not None for name in pair)]
    if len(names) != 1 or any(getattr(body, name) is None for name in names[0]):
        raise InvalidRequestError(
            "queries and documents are required, or text_1 and text_2", field="queries"
        )
    first, second = names[0]
    return PairsRequest(
        queries=_texts(getattr(body, first)),
        documents=_texts(getattr(body, second)),
        is_activated=body.is_activated,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        tenant=current_tenant(),
        cache_salt=body.cache_salt,
        priority=body.priority or 0,
        fields=PairFields(first, second),
    )


def _texts(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _rerank_pairs(body: RerankBody) -> PairsRequest:
    if body.top_n is not None and body.top_n < 0:
        raise InvalidRequestError(f"top_n must be at least 0, got {body.top_n}", field="top_n")
    if body.max_tokens_per_doc is not None:
        raise InvalidRequestError(
            "max_tokens_per_doc is not supported; truncate_prompt_tokens cuts each pair",
            field="max_tokens_per_doc",
            code="unsupported_parameter",
        )
    return PairsRequest(
        queries=[body.query],
        documents=[_text(item) for item in body.documents],
        is_activated=body.is_activated,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        tenant=current_tenant(),
        cache_salt=body.cache_salt,
        priority=body.priority or 0,
        fields=PairFields("query", "documents"),
    )


def _text(item: str | DocumentBody) -> str:
    return item if isinstance(item, str) else item.text


def _score_answer(model: str, found: PairScores) -> dict[str, Any]:
    return {
        "id": f"score-{mint_request_id().hex()}",
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": [
            {"index": index, "object": "score", "score": value}
            for index, value in enumerate(found.scores)
        ],
        "usage": _usage(found),
    }


def _rerank_answer(
    model: str, body: RerankBody, found: PairScores, has_documents: bool
) -> dict[str, Any]:
    # The first of equal scores stays first.
    order = sorted(range(len(found.scores)), key=lambda index: -found.scores[index])
    shown = order[: body.top_n] if body.top_n else order
    if body.return_documents is not None:
        has_documents = body.return_documents
    results = [
        {
            "index": index,
            "relevance_score": found.scores[index],
            **({"document": {"text": _text(body.documents[index])}} if has_documents else {}),
        }
        for index in shown
    ]
    return {
        "id": f"rerank-{mint_request_id().hex()}",
        "model": model,
        "results": results,
        "usage": _usage(found),
        # Cohere's clients read the units that a search costs.
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
    }


def _usage(found: PairScores) -> dict[str, int | str]:
    tokens = found.usage.prompt_tokens
    return {"prompt_tokens": tokens, "total_tokens": tokens, **found.usage.version_fields}
