"""POST /v1/responses: turns an input into a response, whole, streamed or in the background."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.chat.effort import check_effort
from pagewire_frontend.chat.plan import MessagePlan, plan_message
from pagewire_frontend.chat.tool_use import ToolUse
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.field_outcomes import unread_fields
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.schemas import body_of, body_schema
from pagewire_frontend.http.responses import options
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.http.responses.frames import frames
from pagewire_frontend.http.responses.ids import mint_response_id
from pagewire_frontend.http.responses.input import input_items
from pagewire_frontend.http.responses.items import Item, turns
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.responses.pending_response import PendingResponse
from pagewire_frontend.http.responses.run import ResponseRun
from pagewire_frontend.http.responses.schemas import ResponsesBody, check_body
from pagewire_frontend.http.responses.shapes import Shapes
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.http.server.ignored_fields import first_names, note_ignored
from pagewire_frontend.http.streaming.event_stream import EventStream
from pagewire_frontend.prompts.generation_request import ChatPrompt, GenerationRequest
from pagewire_shared.errors import InvalidRequestError, PagewireError


def response_stream(
    request: Request,
    ready: AsyncIterator[list[bytes]],
    close: Callable[[], None] = lambda: None,
) -> EventStream[bytes]:
    """Return a stream of framed events, with nothing behind the last of them."""
    return EventStream(request, ready, close, frame=bytes, last=b"")


ASKED_SECONDS: Final = 1.0
"""How long the creation of a background response waits until the engine accepts or refuses it.
Errors are so reported at once, and a model without a worker delays no client."""


def make_router(
    engine: Engine,
    responses: LocalResponses,
    *,
    bodies: Bodies,
    directory: ResponseDirectory,
) -> APIRouter:
    """Return the endpoint.

    Args:
        directory: Finds the responses of earlier turns by their ids.
    """
    router = APIRouter()

    @router.post("/v1/responses", openapi_extra=body_schema(ResponsesBody))
    async def create(request: Request) -> Response:
        """Answer an input."""
        body, said, tools, ignored = await bodies.read_as(request, _checked)
        note_ignored(request.scope, ignored)
        try:
            template = engine.models.find(body.model).chat_template
            note_ignored(request.scope, options.unread_values(body, template))
            pending, plan = await _pending_response(
                engine, responses, directory, body, said, tools, current_tenant()
            )
            try:
                return await _answer(request, responses, pending, is_streamed=bool(body.stream))
            except PagewireError as error:
                raise plan.named(error) from error.__cause__
        except PagewireError as error:
            raise options.as_given(error, body) from error.__cause__

    return router


async def _answer(
    request: Request, responses: LocalResponses, pending: PendingResponse, *, is_streamed: bool
) -> Response:
    if pending.is_background:
        return await _background(request, responses, pending, is_streamed=is_streamed)
    if is_streamed:
        return await _streamed(request, responses, pending)
    return await _whole(request, responses, pending)


def _checked(data: dict[str, Any]) -> tuple[ResponsesBody, list[Item], ToolUse, list[str]]:
    """Return a body, its input items, its tools and its fields without effect. Checking tens of
    thousands of parts may take a tenth of a second."""
    body, shapes = body_of(ResponsesBody, data), Shapes()
    check_body(body)
    said, tools = input_items(body.input, shapes), options.tool_use(body, shapes)
    return body, said, tools, first_names(shapes.ignored | set(unread_fields(body)))


async def _pending_response(
    engine: Engine,
    responses: LocalResponses,
    directory: ResponseDirectory,
    body: ResponsesBody,
    said: list[Item],
    tools: ToolUse,
    tenant: str | None,
) -> tuple[PendingResponse, MessagePlan]:
    if body.background and not responses.keeps_any:
        raise InvalidRequestError("background: this server keeps no responses", field="background")
    model = engine.models.find(body.model)
    params = options.sampling(body, model.defaults)
    check_effort(options.effort(body), model.formats, "reasoning.effort")
    if body.previous_response_id is not None:
        said = [*await _conversation(directory, body.previous_response_id, tenant), *said]
    arguments = options.template_arguments(body)
    prompt_end = await engine.prompt_end(model, arguments)
    plan = plan_message(model, params, tools, prompt_end=prompt_end)
    prompt = ChatPrompt(
        turns(said, body.instructions),
        template_arguments=arguments,
        tools=plan.template_tools,
    )
    request = GenerationRequest(
        model=model,
        prompt=prompt,
        params=plan.params,
        tenant=tenant,
        cache_salt=body.cache_salt,
        priority=body.priority or 0,
        marks=plan.marks,
    )
    pending = PendingResponse(
        response_id=mint_response_id(responses.tag),
        created_at=int(time.time()),
        request=request,
        new_reader=plan.new_reader,
        echo=options.echo(body, params),
        input_items=said,
        has_logprobs=options.has_logprobs(body),
        is_background=bool(body.background),
        is_stored=body.store is not False,
        has_replay=bool(body.background and body.stream),
    )
    return pending, plan


async def _conversation(
    directory: ResponseDirectory, response_id: str, tenant: str | None
) -> list[dict[str, Any]]:
    try:
        return await directory.conversation(response_id, tenant)
    except PagewireError as error:
        error.field = "previous_response_id"
        raise


async def _whole(request: Request, responses: LocalResponses, pending: PendingResponse) -> Response:
    run = await while_connected(request, responses.open(pending))
    try:
        await while_connected(request, _read(run))
    finally:
        responses.end(run)
    if run.error is not None:
        # Nothing was sent so far: the failure is the whole answer.
        raise run.error
    return json_response(run.body())


async def _read(run: ResponseRun) -> None:
    await run.wait_first()
    async for _ in run.events():
        pass


async def _streamed(
    request: Request, responses: LocalResponses, pending: PendingResponse
) -> Response:
    run = await while_connected(request, responses.open(pending))
    is_handed_over = False
    try:
        # An error before the first token is still a plain status.
        await while_connected(request, run.wait_first())
        response = response_stream(request, _frames(run), lambda: responses.end(run))
        is_handed_over = True
        return response
    finally:
        if not is_handed_over:
            responses.end(run)


async def _frames(run: ResponseRun) -> AsyncIterator[list[bytes]]:
    yield frames(run.created())
    async for events in run.events():
        yield frames(events)


async def _background(
    request: Request, responses: LocalResponses, pending: PendingResponse, *, is_streamed: bool
) -> Response:
    background = responses.start(pending)
    try:
        await background.wait_asked(ASKED_SECONDS)
    except PagewireError:
        responses.forget(pending.response_id)
        raise
    if is_streamed:
        return response_stream(request, background.log.follow(0))
    return json_response(background.run.body())
