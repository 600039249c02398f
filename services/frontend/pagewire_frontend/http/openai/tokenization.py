"""POST /tokenize and /detokenize, in vLLM's form."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.body_fields import FIRST_ERROR, Ids, StrictBody
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.options import chat_prompt
from pagewire_frontend.http.openai.schemas import ChatMessageBody, body_schema
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import Prompt, TextPrompt
from pagewire_shared.errors import InvalidRequestError


class TokenizeBody(StrictBody):
    """POST /tokenize: `prompt`, or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: Annotated[list[ChatMessageBody], Field(min_length=1), FIRST_ERROR] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(StrictBody):
    """POST /detokenize."""

    model: str | None = None
    tokens: Ids


def make_router(engine: Engine, *, bodies: Bodies) -> APIRouter:
    """Return the two endpoints."""
    router = APIRouter()

    @router.post("/tokenize", openapi_extra=body_schema(TokenizeBody))
    async def tokenize(request: Request) -> Response:
        """Turn a text or a conversation into token ids."""
        body = await bodies.read(request, TokenizeBody)
        model = engine.models.find(body.model)
        return json_response(await while_connected(request, _tokenized(engine, model, body)))

    @router.post("/detokenize", openapi_extra=body_schema(DetokenizeBody))
    async def detokenize(request: Request) -> Response:
        """Turn token ids into text."""
        body = await bodies.read(request, DetokenizeBody)
        model = engine.models.find(body.model)
        work = engine.tokenization.detokenize(
            model, body.tokens, field="tokens", skip_special_tokens=False
        )
        return json_response({"prompt": await while_connected(request, work)})

    return router


async def _tokenized(engine: Engine, model: LoadedModel, body: TokenizeBody) -> dict[str, Any]:
    ids = await engine.tokenization.tokenize(model, _prompt(body), field="prompt")
    answer: dict[str, Any] = {"count": len(ids), "tokens": ids}
    length = engine.context_length(model)
    if length is not None:
        answer["max_model_len"] = length
    if body.return_token_strs:
        answer["token_strs"] = await engine.tokenization.names(model, ids)
    return answer


def _prompt(body: TokenizeBody) -> Prompt:
    if (body.prompt is None) == (body.messages is None):
        raise InvalidRequestError("exactly one of prompt and messages is required", field="prompt")
    if body.messages is None:
        return TextPrompt(body.prompt or "", body.add_special_tokens is not False)
    return chat_prompt(body, body.messages)
