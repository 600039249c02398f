"""POST /v1/chat/completions and /v1/completions: from a body to an answer, whole or streamed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response

from pagewire_frontend.api_keys import current_tenant
from pagewire_frontend.engine import Engine
from pagewire_frontend.generation_request import GenerationRequest
from pagewire_frontend.http import asked_answer, options
from pagewire_frontend.http.answer import Answer, open_answer
from pagewire_frontend.http.answer_head import AnswerFormat, AnswerParts
from pagewire_frontend.http.asked_answer import AskedAnswer
from pagewire_frontend.http.chat_format import ChatFormat
from pagewire_frontend.http.completion_format import CompletionFormat
from pagewire_frontend.http.connection import read_body, while_connected
from pagewire_frontend.http.errors import json_response
from pagewire_frontend.http.event_stream import EventStream
from pagewire_frontend.http.field_names import as_given
from pagewire_frontend.http.schemas import ChatBody, CompletionBody, GenerationBody, parse_body
from pagewire_frontend.model_registry import LoadedModel
from pagewire_shared.errors import PagewireError

FormatClass = Callable[[AnswerParts], AnswerFormat]
Shape = TypeVar("Shape")


def make_router(engine: Engine, *, max_body_bytes: int) -> APIRouter:
    """Return the two endpoints."""
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=_body_schema(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation."""
        body = parse_body(ChatBody, await read_body(request, max_body_bytes))
        try:
            model = engine.models.find(body.model)
            params = options.chat_params(body, model.defaults)
            prompt = options.chat_prompt(body)
            asked = [_request(body, model, prompt=prompt, params=params)]
            shown = asked_answer.of_chat(body)
            return await _answer(engine, request, asked, shown, ChatFormat, bool(body.stream))
        except PagewireError as error:
            raise as_given(error, body) from error.__cause__

    @router.post("/v1/completions", openapi_extra=_body_schema(CompletionBody))
    async def completions(request: Request) -> Response:
        """Continue one or more prompts."""
        body = parse_body(CompletionBody, await read_body(request, max_body_bytes))
        try:
            model = engine.models.find(body.model)
            params = options.completion_params(body, model.defaults)
            prompts = options.completion_prompts(body)
            asked = [_request(body, model, prompt=prompt, params=params) for prompt in prompts]
            shown = asked_answer.of_completion(body)
            return await _answer(engine, request, asked, shown, CompletionFormat, bool(body.stream))
        except PagewireError as error:
            raise as_given(error, body) from error.__cause__

    return router


def _body_schema(cls: type[GenerationBody]) -> dict[str, Any]:
    # Bodies are read by hand, for our own errors; the API description still shows them.
    schema = cls.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _request(body: GenerationBody, model: LoadedModel, **rest: Any) -> GenerationRequest:
    return GenerationRequest(
        model=model,
        tenant=current_tenant(),
        cache_salt=body.cache_salt,
        priority=body.priority or 0,
        **rest,
    )


async def _answer(
    engine: Engine,
    request: Request,
    asked: list[GenerationRequest],
    shown: AskedAnswer,
    format_class: FormatClass,
    is_streamed: bool,
) -> Response:
    opening = open_answer(engine, asked, has_echo=shown.has_echo, has_output=shown.has_output)
    answer = await while_connected(request, opening)
    is_handed_over = False
    try:
        form = format_class(_parts(answer, asked[0].model, shown))
        if not is_streamed:
            choices = await while_connected(request, answer.whole())
            return json_response(await _shaped(shown, form.whole, choices, answer.usage))
        # What goes wrong before the first token is still a plain status.
        await while_connected(request, answer.wait_first())
        response = EventStream(request, _chunks(answer, form, shown), answer.close)
        is_handed_over = True
        return response
    finally:
        if not is_handed_over:
            answer.close()


def _parts(answer: Answer, model: LoadedModel, shown: AskedAnswer) -> AnswerParts:
    return AnswerParts(
        request_id=answer.request_id,
        model=model.name,
        created=int(time.time()),
        tokenizer=model.tokenizer,
        asked=shown,
        prompts=answer.prompts,
        choices_per_prompt=answer.choices_per_prompt,
    )


async def _chunks(
    answer: Answer, form: AnswerFormat, shown: AskedAnswer
) -> AsyncIterator[list[dict[str, Any]]]:
    is_open = False
    async for number, event in answer.events():
        if not is_open:
            # Not before: only now all that is said of the prompt is known.
            yield await _shaped(shown, form.opening, answer.num_choices)
            is_open = True
        chunk = await _shaped(shown, form.chunk, number, event)
        if chunk is not None:
            yield [chunk]
    if shown.has_usage_chunk:
        yield [form.usage_chunk(answer.usage)]


async def _shaped(shown: AskedAnswer, shape: Callable[..., Shape], *parts: Any) -> Shape:
    """Return `shape(*parts)`, which long work does beside the event loop."""
    if shown.scores_prompt:
        return await asyncio.to_thread(shape, *parts)
    return shape(*parts)
