"""The form of the events of kept streams: how they are logged, and what an error becomes."""

from typing import Final, Protocol

from pagewire_frontend.http.kept_streams.ids import SSE_KIND, frame_of
from pagewire_frontend.http.server.errors import error_body
from pagewire_frontend.http.streaming.event_stream import event_bytes
from pagewire_shared.errors import PagewireError, UnavailableError

_EVENT_END: Final = b"\n\n"


class Framing(Protocol):
    """One form of events."""

    @property
    def kind(self) -> str:
        """First word of the ids of streams of this form."""
        ...

    def frames(self, stream_id: str, first: int, ready: bytes) -> list[bytes]:
        """Return the frames of whole events; `first` is the number of the first one."""
        ...

    def error(self, stream_id: str, number: int, error: PagewireError) -> bytes:
        """Return the frame, with this number, of the error that ends a stream."""
        ...


class SseFraming:
    """Server-sent events, each with its id in front; several may come together."""

    kind = SSE_KIND

    def frames(self, stream_id: str, first: int, ready: bytes) -> list[bytes]:
        """Return the frames of whole events."""
        parts = ready.split(_EVENT_END)[:-1]
        return [
            frame_of(stream_id, first + index, part + _EVENT_END)
            for index, part in enumerate(parts)
        ]

    def error(self, stream_id: str, number: int, error: PagewireError) -> bytes:
        """Return the event of an error."""
        if isinstance(error, UnavailableError):
            # It is asked for again elsewhere, where another event has this number.
            return event_bytes(error_body(error))
        return frame_of(stream_id, number, event_bytes(error_body(error)))


SSE_FRAMING: Final = SseFraming()
