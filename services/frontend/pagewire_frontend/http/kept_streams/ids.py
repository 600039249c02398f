"""Mints the ids of kept streams and of their events. A stream's id holds the tag of the frontend
process that made it, and nothing else; that of an event also its number."""

import os
import re
from dataclasses import dataclass
from typing import Final

from pagewire_shared.errors import InvalidRequestError, PagewireError

_STREAM_ID: Final = re.compile(r"(stream|call|resp)_([0-9a-f]{8})_[0-9a-f]{32}")
_MAX_DIGITS: Final = 12


SSE_KIND: Final = "stream"
"""First word of the ids of streams of server-sent events."""
CALL_KIND: Final = "call"
"""The same of gRPC calls, whose events are messages."""
RESPONSE_KIND: Final = "resp"
"""The same of responses, whose own ids these are."""


def mint_stream_id(kind: str, tag: str) -> str:
    """Return the id of a new stream of the process `tag`; `kind` says what its events are."""
    return f"{kind}_{tag}_{os.urandom(16).hex()}"


def require_kind(stream_id: str, kind: str) -> None:
    """Raise StreamNotFoundError unless the events of the stream are of a kind."""
    match = _STREAM_ID.fullmatch(stream_id)
    if match is None or match[1] != kind:
        raise stream_not_found(stream_id, kind)


def tag_of_stream(stream_id: str) -> str | None:
    """Return the tag of the process that made a stream; None for a malformed id."""
    match = _STREAM_ID.fullmatch(stream_id)
    return match[2] if match else None


def frame_of(stream_id: str, number: int, event: bytes) -> bytes:
    """Return an event, which ends with an empty line, with its id in front."""
    return event_head(stream_id) % number + event


def event_head(stream_id: str) -> bytes:
    """Return what stands in front of the events of a stream, with `%d` for the number of each."""
    return b"id: %b:%%d\n" % stream_id.encode()


def parse_event_id(text: str) -> tuple[str, int]:
    """Return the stream and the number of an event. Raises InvalidRequestError."""
    stream_id, _, number = text.rpartition(":")
    is_number = number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS
    if tag_of_stream(stream_id) is None or not is_number:
        raise InvalidRequestError(
            f"last-event-id: {text[:100]!r} is not the id of an event of a kept stream",
            field="last-event-id",
        )
    return stream_id, int(number)


@dataclass
class StreamNotFoundError(PagewireError):
    """No stream of that id is kept, or it is another tenant's."""

    field: str | None = "stream_id"
    code: str = "stream_not_found"
    status_name = "NOT_FOUND"
    __str__ = PagewireError.__str__


_PLACES: Final = {
    SSE_KIND: "over HTTP, at /v1/streams",
    CALL_KIND: "over gRPC, with Resume",
    RESPONSE_KIND: "over HTTP, at /v1/responses",
}


def stream_not_found(stream_id: str, kind: str | None = None) -> StreamNotFoundError:
    """Return the error for an id without a stream, or of one that is of another `kind`."""
    shown, match = repr(stream_id[:64]), _STREAM_ID.fullmatch(stream_id)
    if match is None:
        return StreamNotFoundError(f"{shown} is no id of a stream")
    if kind is not None and match[1] != kind:
        return StreamNotFoundError(f"{shown} is read {_PLACES[match[1]]}")
    return StreamNotFoundError(
        f"the stream {shown} is gone: it had no reader for --stream-retention-seconds, or it "
        "was dropped for newer ones"
    )


_ELSEWHERE: Final = "stream_elsewhere"
"""Between frontends only: the one that asks goes on to the next."""


@dataclass
class StreamElsewhereError(StreamNotFoundError):
    """Another process has made the stream, and this one does not have it."""

    code: str = _ELSEWHERE
    __str__ = PagewireError.__str__


def stream_elsewhere(stream_id: str) -> StreamElsewhereError:
    """Return the error of a process that has not made a stream."""
    return StreamElsewhereError(
        f"the stream {stream_id[:64]!r} is gone: its frontend is, and no other has its recipe"
    )


@dataclass
class StreamLostError(PagewireError):
    """The frontend of a stream is gone, and what another made again might differ."""

    field: str | None = "stream_id"
    code: str = "stream_not_repeatable"
    status_name = "ABORTED"
    __str__ = PagewireError.__str__
