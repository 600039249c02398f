"""POST /v1/chat/completions and /v1/completions: turns a body into an answer, whole or streamed."""

import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.chat.effort import check_effort
from pagewire_frontend.chat.plan import plan_message
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.directory import StreamDirectory
from pagewire_frontend.http.kept_streams.endpoints import resumed
from pagewire_frontend.http.kept_streams.headers import goes_on
from pagewire_frontend.http.openai import options, response_options
from pagewire_frontend.http.openai.answer import Answer, WholeChoice, open_answer
from pagewire_frontend.http.openai.answer_head import AnswerFormat, AnswerParts
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.chat_format import ChatFormat
from pagewire_frontend.http.openai.completion_format import CompletionFormat
from pagewire_frontend.http.openai.options import tool_use
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.openai.schemas import (
    ChatBody,
    CompletionBody,
    GenerationBody,
    body_schema,
)
from pagewire_frontend.http.openai.streams import Streams, shaped
from pagewire_frontend.http.openai.structured import as_given
from pagewire_frontend.http.openai.unread_values import unread_values
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.http.server.ignored_fields import note_ignored
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import GenerationRequest
from pagewire_shared.errors import PagewireError

FormatClass = Callable[[AnswerParts], AnswerFormat]
MakeStream = Callable[[Request, Answer, AnswerFormat, ResponseOptions], Response]


def make_router(
    engine: Engine, streams: Streams, kept: StreamDirectory, *, bodies: Bodies
) -> APIRouter:
    """Return the two endpoints, which find streams that go on in `kept`."""
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=body_schema(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation."""
        if (rest := await resumed(request, kept)) is not None:
            return rest
        body = await bodies.read(request, ChatBody)
        try:
            return await _chat(engine, request, body, streams)
        except PagewireError as error:
            raise as_given(error, body) from error.__cause__

    @router.post("/v1/completions", openapi_extra=body_schema(CompletionBody))
    async def completions(request: Request) -> Response:
        """Continue one or more prompts."""
        if (rest := await resumed(request, kept)) is not None:
            return rest
        body = await bodies.read(request, CompletionBody)
        try:
            return await _completion(engine, request, body, streams)
        except PagewireError as error:
            raise as_given(error, body) from error.__cause__

    return router


async def _chat(engine: Engine, request: Request, body: ChatBody, streams: Streams) -> Response:
    make_stream = _maker(request, body, streams)
    model = engine.models.find(body.model)
    params = options.chat_params(body, model.defaults)
    check_effort(body.reasoning_effort, model.formats, "reasoning_effort")
    prompt = options.chat_prompt(body, body.messages)
    note_ignored(request.scope, unread_values(body, model.chat_template))
    plan = plan_message(
        model,
        params,
        tool_use(body),
        prompt_end=await engine.prompt_end(model, prompt.template_arguments),
        opens_turn=prompt.add_generation_prompt,
    )
    prompt = replace(prompt, tools=plan.template_tools)
    prediction = body.prediction.text if body.prediction is not None else None
    given = {"params": plan.params, "marks": plan.marks, "prediction": prediction}
    asked = [_request(body, model, prompt=prompt, **given)]
    shown = response_options.of_chat(body)
    form = partial(ChatFormat, new_reader=plan.new_reader)
    try:
        return await _answer(engine, request, asked, shown, form, make_stream)
    except PagewireError as error:
        raise plan.named(error) from error.__cause__


async def _completion(
    engine: Engine, request: Request, body: CompletionBody, streams: Streams
) -> Response:
    make_stream = _maker(request, body, streams)
    model = engine.models.find(body.model)
    params = options.completion_params(body, model.defaults)
    prompts = options.completion_prompts(body)
    asked = [_request(body, model, prompt=prompt, params=params) for prompt in prompts]
    shown = response_options.of_completion(body)
    return await _answer(engine, request, asked, shown, CompletionFormat, make_stream)


def _maker(request: Request, body: GenerationBody, streams: Streams) -> MakeStream | None:
    """Return what makes the stream of an answer; None where it is not streamed."""
    is_streamed = bool(body.stream)
    if goes_on(request, is_streamed=is_streamed, keeps_any=streams.keeps_any):
        return streams.of_kept
    return streams.of_answer if is_streamed else None


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
    shown: ResponseOptions,
    format_class: FormatClass,
    make_stream: MakeStream | None,
) -> Response:
    opening = open_answer(engine, asked, has_echo=shown.has_echo, has_output=shown.has_output)
    if make_stream is not None:
        answer = await while_connected(request, _begun(opening))
        try:
            form = format_class(_parts(answer, asked[0].model, shown))
            return make_stream(request, answer, form, shown)
        except BaseException:
            answer.close()
            raise
    answer, choices = await while_connected(request, _ended(opening))
    form = format_class(_parts(answer, asked[0].model, shown))
    return json_response(await shaped(shown, form.whole, choices, answer.usage))


async def _begun(opening: Coroutine[Any, Any, Answer]) -> Answer:
    """Return an open answer with its first token: an error before that is a plain status."""
    answer = await opening
    try:
        await answer.wait_first()
    except BaseException:
        answer.close()
        raise
    return answer


async def _ended(opening: Coroutine[Any, Any, Answer]) -> tuple[Answer, list[WholeChoice]]:
    """Return a closed answer and all of its choices."""
    answer = await opening
    try:
        return answer, await answer.whole()
    finally:
        answer.close()


def _parts(answer: Answer, model: LoadedModel, shown: ResponseOptions) -> AnswerParts:
    return AnswerParts(
        request_id=answer.request_id,
        model=model.shown_name,
        created=int(time.time()),
        tokenizer=model.tokenizer,
        asked=shown,
        prompts=answer.prompts,
        choices_per_prompt=answer.choices_per_prompt,
    )
