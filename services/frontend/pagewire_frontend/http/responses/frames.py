"""Turns events of a response into what is sent, and names the form of its kept stream."""

from collections.abc import Sequence
from typing import Final

import orjson

from pagewire_frontend.http.kept_streams.ids import RESPONSE_KIND
from pagewire_frontend.http.responses.output import Event
from pagewire_frontend.http.responses.pending_response import Body
from pagewire_shared.errors import PagewireError, UnavailableError

_EVENT_END: Final = b"\n\n"
_WHOLE: Final = b"event: response\n"


def frames(events: Sequence[Event]) -> list[bytes]:
    """Return each event with its type in front, as OpenAI's streams of responses have it."""
    return [
        b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
        for event in events
    ]


def whole_frame(body: Body) -> bytes:
    """Return the only event of a response that is not streamed."""
    return _WHOLE + b"data: " + orjson.dumps(body) + b"\n\n"


def is_whole_frame(frame: bytes) -> bool:
    """Return whether an event is that of a response that is not streamed."""
    return frame.startswith(_WHOLE)


class ResponseFraming:
    """The typed events of responses. Their ids are their numbers, which are in them."""

    kind = RESPONSE_KIND

    def frames(self, stream_id: str, first: int, ready: bytes) -> list[bytes]:
        """Return the frames of whole events."""
        return [part + _EVENT_END for part in ready.split(_EVENT_END)[:-1]]

    def error(self, stream_id: str, number: int, error: PagewireError) -> bytes:
        """Return the event of an error."""
        event: Event = {
            "type": "error",
            "code": error.code,
            "message": error.message,
            "param": error.field,
        }
        if not isinstance(error, UnavailableError):
            # Else it is asked for again elsewhere, where another event has this number.
            event["sequence_number"] = number
        return frames([event])[0]


RESPONSE_FRAMING: Final = ResponseFraming()
