"""POST /v1/responses: turns an input into a response, whole, streamed or in the background."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.engine.engine import Engine
from pagewire_frontend.http.kept_streams.headers import goes_on
from pagewire_frontend.http.kept_streams.keyed_streams import RequestKey, data_of
from pagewire_frontend.http.kept_streams.keys import key_of
from pagewire_frontend.http.kept_streams.making import Making
from pagewire_frontend.http.kept_streams.pins import Pins, draw_pins
from pagewire_frontend.http.kept_streams.recipe_keeper import KeptRequest
from pagewire_frontend.http.openai.bodies import Bodies
from pagewire_frontend.http.openai.schemas import body_schema
from pagewire_frontend.http.openai.streams import Streams
from pagewire_frontend.http.responses import options
from pagewire_frontend.http.responses.asked import (
    RESPONSES_PATH,
    AskedResponse,
    checked,
    pending_response,
    recipe_body,
)
from pagewire_frontend.http.responses.directory import ResponseDirectory
from pagewire_frontend.http.responses.frames import frames
from pagewire_frontend.http.responses.ids import mint_response_id
from pagewire_frontend.http.responses.items import Item
from pagewire_frontend.http.responses.kept_run import Built, ResponseSource
from pagewire_frontend.http.responses.local import LocalResponses
from pagewire_frontend.http.responses.pending_response import PendingResponse
from pagewire_frontend.http.responses.run import ResponseRun
from pagewire_frontend.http.responses.schemas import ResponsesBody
from pagewire_frontend.http.server.connection import while_connected
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.http.server.ignored_fields import note_ignored
from pagewire_frontend.http.server.request_id import REPLAYED, STREAM_ID
from pagewire_frontend.http.streaming.event_stream import EventStream
from pagewire_shared.errors import InvalidRequestError, PagewireError


def response_stream(
    request: Request,
    ready: AsyncIterator[list[bytes]],
    close: Callable[[], None],
) -> EventStream[bytes]:
    """Return a stream of framed events, with nothing behind the last of them."""
    return EventStream(request, ready, close, frame=bytes, last=b"")


@dataclass(frozen=True, slots=True)
class ResponseTools:
    """What responses are made with.

    Attributes:
        responses: Those of this process.
        directory: Finds the responses of earlier turns by their ids.
        streams: Keeps responses that go on without their client.
    """

    engine: Engine
    responses: LocalResponses
    directory: ResponseDirectory
    streams: Streams


def make_router(tools: ResponseTools, *, bodies: Bodies) -> APIRouter:
    """Return the endpoint."""
    router, streams = APIRouter(), tools.streams

    @router.post(RESPONSES_PATH, openapi_extra=body_schema(ResponsesBody))
    async def create(request: Request) -> Response:
        """Answer an input."""
        key, pins = key_of(request, keeps_any=streams.keeps_any), draw_pins()
        found = await bodies.read_text_as(request, partial(checked, pins, key is not None))
        asked, body = found.body, found.body.body
        note_ignored(request.scope, asked.ignored)
        # Those with a key or in the background go on anyway: the header is only checked.
        checks_only = key is not None or bool(body.background)
        is_streamed = checks_only or bool(body.stream)
        is_kept = goes_on(request, is_streamed=is_streamed, keeps_any=streams.keeps_any)
        try:
            template = tools.engine.models.find(body.model).chat_template
            note_ignored(request.scope, options.unread_values(body, template))
            if not is_kept and not checks_only:
                return await _with_client(request, tools, asked, pins)
            if body.background and not tools.responses.keeps_any:
                raise InvalidRequestError(
                    "background: this server keeps no responses", field="background"
                )
            source = ResponseSource(
                tools.responses, partial(_built, tools, asked, found.text, pins)
            )
            wanted = None if key is None else RequestKey(key, current_tenant(), asked.digest)
            return await _kept(request, streams, source, wanted, is_streamed=bool(body.stream))
        except PagewireError as error:
            raise options.as_given(error, body) from error.__cause__

    return router


async def _with_client(
    request: Request, tools: ResponseTools, asked: AskedResponse, pins: Pins
) -> Response:
    """Return the response of a request that ends with its client."""
    responses = tools.responses
    pending, plan = await pending_response(
        tools.engine,
        asked,
        await _conversation(tools.directory, asked),
        response_id=mint_response_id(responses.tag),
        pins=pins,
    )
    deliver = _streamed if asked.body.stream else _whole
    try:
        return await deliver(request, responses, pending)
    except PagewireError as error:
        raise plan.named(error) from error.__cause__


async def _built(
    tools: ResponseTools, asked: AskedResponse, text: bytes, pins: Pins, response_id: str
) -> Built:
    """Return a response that goes on without its client."""
    earlier, streams = await _conversation(tools.directory, asked), tools.streams
    making = Making(pins=pins) if streams.is_mirrored else None
    pending, plan = await pending_response(
        tools.engine,
        asked,
        earlier,
        response_id=response_id,
        pins=pins,
        making=making,
        is_kept=True,
    )
    kept = None
    if making is not None:
        kept = KeptRequest(RESPONSES_PATH, recipe_body(earlier, text), pins)
    return Built(pending, plan, streams.keeper(kept, response_id))


async def _conversation(directory: ResponseDirectory, asked: AskedResponse) -> list[Item]:
    """Return the conversation before the input of a request."""
    response_id = asked.body.previous_response_id
    if response_id is None:
        return []
    try:
        return await directory.conversation(response_id, current_tenant())
    except PagewireError as error:
        error.field = "previous_response_id"
        raise


async def _kept(
    request: Request,
    streams: Streams,
    source: ResponseSource,
    key: RequestKey | None,
    *,
    is_streamed: bool,
) -> Response:
    """Return the answer of a response that goes on without its client; of one in the background its
    beginning."""
    found = await while_connected(request, streams.answer(key, source))
    response: Response
    if is_streamed:
        response = response_stream(request, found.reading.frames, found.reading.close)
    else:
        response = Response(await data_of(found.reading), media_type="application/json")
    response.raw_headers.append((STREAM_ID.encode(), found.stream_id.encode()))
    if found.is_joined:
        response.raw_headers.append((REPLAYED.encode(), b"true"))
    return response


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
