"""GET /v1/streams/{stream_id}: reads a kept stream again, from any event on."""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from pagewire_frontend.access.api_keys import current_tenant
from pagewire_frontend.http.kept_streams.directory import StreamDirectory, StreamReading
from pagewire_frontend.http.kept_streams.headers import LAST_EVENT_ID
from pagewire_frontend.http.kept_streams.ids import SSE_KIND, parse_event_id, require_kind
from pagewire_frontend.http.server.errors import json_response
from pagewire_frontend.http.server.query import whole_number
from pagewire_frontend.http.server.request_id import STREAM_ID
from pagewire_frontend.http.streaming.event_stream import EventStream
from pagewire_frontend.http.streaming.flush_rounds import FlushRounds
from pagewire_frontend.http.streaming.live_stream import LiveStream
from pagewire_shared.errors import InvalidRequestError

_MAX_EVENT: Final = 2**31 - 1
_QUERY: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "from",
            "in": "query",
            "required": False,
            "schema": {"type": "integer", "minimum": 0, "maximum": _MAX_EVENT},
        }
    ]
}


def make_router(directory: StreamDirectory) -> APIRouter:
    """Return the endpoint, which finds streams in `directory`."""
    router, rounds = APIRouter(), FlushRounds()

    @router.get("/v1/streams/{stream_id}", openapi_extra=_QUERY)
    async def read_stream(request: Request, stream_id: str) -> Response:
        """Return the events of a kept stream behind `last-event-id`, or from number `from` on."""
        first = whole_number(request.query_params, "from", least=0, most=_MAX_EVENT)
        last = request.headers.get(LAST_EVENT_ID)
        if last and first is None:
            named, number = parse_event_id(last)
            if named != stream_id:
                raise InvalidRequestError(
                    f"{LAST_EVENT_ID} is of another stream", field=LAST_EVENT_ID
                )
            first = number + 1
        require_kind(stream_id, SSE_KIND)
        reading = await directory.read(stream_id, current_tenant(), first or 0)
        return stream_response(request, reading, stream_id, rounds)

    @router.delete("/v1/streams/{stream_id}")
    async def cancel_stream(request: Request, stream_id: str) -> Response:
        """End a kept stream, and forget it."""
        require_kind(stream_id, SSE_KIND)
        await directory.forget(stream_id, current_tenant())
        return json_response({"id": stream_id, "object": "stream.deleted", "deleted": True})

    return router


async def resumed(
    request: Request, directory: StreamDirectory, rounds: FlushRounds
) -> Response | None:
    """Return the rest of the stream that `last-event-id` is of; None without that header, or
    with an empty one.

    Raises:
        InvalidRequestError: It is not the id of an event.
        StreamNotFoundError: The stream is gone.
    """
    last = request.headers.get(LAST_EVENT_ID)
    if not last:
        # Browsers send an empty one where no event had an id.
        return None
    stream_id, number = parse_event_id(last)
    require_kind(stream_id, SSE_KIND)
    reading = await directory.read(stream_id, current_tenant(), number + 1)
    return stream_response(request, reading, stream_id, rounds)


def stream_response(
    request: Request, reading: StreamReading, stream_id: str, rounds: FlushRounds
) -> Response:
    """Return the response that sends what is read; `rounds` are those of the process."""
    response: Response
    if reading.source is not None:
        response = LiveStream(request, reading.source, reading.close, rounds)
    else:
        response = EventStream(request, reading.frames, reading.close, frame=bytes, last=b"")
    response.raw_headers.append((STREAM_ID.encode(), stream_id.encode()))
    return response
