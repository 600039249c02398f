"""POST /v1/chat/completions and /v1/completions: turns a body into an answer, whole or streamed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.chat.effort import check_effort
from pagewire_frontend.chat.plan import plan_message
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.directory import StreamDirectory
from pagewire_frontend.http.kept_streams.endpoints import resumed
from pagewire_frontend.http.kept_streams.headers import ON_DISCONNECT, goes_on
from pagewire_frontend.http.kept_streams.keyed_streams import RequestKey
from pagewire_frontend.http.kept_streams.keys import key_of
from pagewire_frontend.http.kept_streams.making import NOTHING_PINNED, Making
from pagewire_frontend.http.kept_streams.recipe_keeper import KeptRequest
from pagewire_frontend.http.openai import options, response_options
from pagewire_frontend.http.openai.answer import Answer, open_answer
from pagewire_frontend.http.openai.answer_head import AnswerFormat, AnswerParts
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.chat_format import ChatFormat
from pagewire_frontend.http.openai.completion_format import CompletionFormat
from pagewire_frontend.http.openai.delivery import Delivery, Opening, deliver_whole
from pagewire_frontend.http.openai.options import tool_use
from pagewire_frontend.http.openai.response_options import ResponseOptions
from pagewire_frontend.http.openai.schemas import (
    ChatBody,
    CompletionBody,
    GenerationBody,
    body_schema,
)
from pagewire_frontend.http.openai.streams import Streams
from pagewire_frontend.http.openai.structured import as_given
from pagewire_frontend.http.openai.unread_values import unread_values
from pagewire_frontend.http.server.ignored_fields import note_ignored
from pagewire_frontend.models.model_registry import LoadedModel
from pagewire_frontend.prompts.generation_request import GenerationRequest
from pagewire_shared.errors import PagewireError

GivenBody = TypeVar("GivenBody", bound=GenerationBody)
CHAT_PATH: Final = "/v1/chat/completions"
COMPLETION_PATH: Final = "/v1/completions"
FormatClass = Callable[[AnswerParts], AnswerFormat]


def make_router(
    engine: Engine, streams: Streams, kept: StreamDirectory, *, bodies: Bodies
) -> APIRouter:
    """Return the two endpoints, which find streams that go on in `kept`."""
    router = APIRouter()

    @router.post(CHAT_PATH, openapi_extra=body_schema(ChatBody))
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation."""
        if (rest := await resumed(request, kept, streams.rounds)) is not None:
            return rest
        read = await _read(request, bodies, ChatBody, streams)
        body = read.body
        try:
            return await _chat(engine, request, body, read.deliver, read.making)
        except PagewireError as error:
            raise as_given(error, body) from error.__cause__

    @router.post(COMPLETION_PATH, openapi_extra=body_schema(CompletionBody))
    async def completions(request: Request) -> Response:
        """Continue one or more prompts."""
        if (rest := await resumed(request, kept, streams.rounds)) is not None:
            return rest
        read = await _read(request, bodies, CompletionBody, streams)
        body = read.body
        try:
            return await _completion(engine, request, body, read.deliver, read.making)
        except PagewireError as error:
            raise as_given(error, body) from error.__cause__

    return router


async def _chat(
    engine: Engine, request: Request, body: ChatBody, deliver: Delivery, making: Making | None
) -> Response:
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
        return await deliver(request, _opening(engine, asked, shown, form, making))
    except PagewireError as error:
        raise plan.named(error) from error.__cause__


async def _completion(
    engine: Engine, request: Request, body: CompletionBody, deliver: Delivery, making: Making | None
) -> Response:
    model = engine.models.find(body.model)
    params = options.completion_params(body, model.defaults)
    prompts = options.completion_prompts(body)
    asked = [_request(body, model, prompt=prompt, params=params) for prompt in prompts]
    shown = response_options.of_completion(body)
    return await deliver(request, _opening(engine, asked, shown, CompletionFormat, making))


@dataclass(frozen=True, slots=True)
class _Read(Generic[GivenBody]):
    """The body of a request, how its answer is delivered, and how it is made if another frontend
    may have to make it again."""

    body: GivenBody
    deliver: Delivery
    making: Making | None = None


async def _read(
    request: Request, bodies: Bodies, cls: type[GivenBody], streams: Streams
) -> _Read[GivenBody]:
    key = key_of(request, keeps_any=streams.keeps_any)
    if key is None and ON_DISCONNECT not in request.headers:
        body = await bodies.read(request, cls)
        return _Read(body, streams.deliver if body.stream else deliver_whole)
    found = await bodies.read_kept(request, cls)
    body, is_streamed = found.body, bool(found.body.stream)
    # With a key each answer goes on: the header is only checked.
    checked = is_streamed if key is None else True
    is_kept = goes_on(request, is_streamed=checked, keeps_any=streams.keeps_any)
    if key is None and not is_kept:
        return _Read(body, streams.deliver if is_streamed else deliver_whole)
    making = streams.new_making()
    asked = None if making is None else KeptRequest(request.url.path, found.text, making.pins)
    if key is None:
        return _Read(body, partial(streams.deliver_kept, asked), making)
    wanted = RequestKey(key, current_tenant(), found.digest)
    return _Read(body, partial(streams.deliver_keyed, wanted, asked, is_streamed), making)


async def opening_again(
    engine: Engine, bodies: Bodies, path: str, text: bytes, making: Making
) -> tuple[Opening, bool]:
    """Return what opens the answer of a request that was read before, by another frontend, and
    whether it is streamed. Raises PagewireError."""
    # Of a request the endpoints note fields without effect, which its first answer has named.
    request = Request({"type": "http"})
    found: list[Opening] = []

    async def take(_: Request, opening: Opening) -> Response:
        found.append(opening)
        return Response()

    is_chat = path == CHAT_PATH
    body: ChatBody | CompletionBody
    if is_chat:
        body = await bodies.read_again(text, ChatBody)
        await _chat(engine, request, body, take, making)
    else:
        body = await bodies.read_again(text, CompletionBody)
        await _completion(engine, request, body, take, making)
    return found[0], bool(body.stream)


def _request(body: GenerationBody, model: LoadedModel, **rest: Any) -> GenerationRequest:
    return GenerationRequest(
        model=model,
        tenant=current_tenant(),
        cache_salt=body.cache_salt,
        priority=body.priority or 0,
        **rest,
    )


def _opening(
    engine: Engine,
    asked: list[GenerationRequest],
    shown: ResponseOptions,
    format_class: FormatClass,
    making: Making | None,
) -> Opening:
    if making is not None:
        asked = [making.applied(one, index) for index, one in enumerate(asked)]
    model = asked[0].model
    return Opening(
        open=partial(
            open_answer, engine, asked, has_echo=shown.has_echo, has_output=shown.has_output
        ),
        form=lambda answer: format_class(_parts(answer, model, shown, making)),
        shown=shown,
        numerics=lambda: engine.numerics(model),
    )


def _parts(
    answer: Answer, model: LoadedModel, shown: ResponseOptions, making: Making | None
) -> AnswerParts:
    pins = making.pins if making is not None else None
    return AnswerParts(
        request_id=answer.request_id if pins is None else pins.request_id(0).hex(),
        model=model.shown_name,
        created=int(time.time()) if pins is None else pins.created,
        tokenizer=model.tokenizer,
        asked=shown,
        prompts=answer.prompts,
        choices_per_prompt=answer.choices_per_prompt,
        pins=pins,
        pinned_usage=NOTHING_PINNED if making is None else making.pinned_usage,
    )
