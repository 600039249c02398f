"""Reads the log of a kept stream as it is written, for one connection."""

from collections.abc import Callable

from pagewire_frontend.http.streaming.event_stream import TextLine
from pagewire_frontend.http.streaming.frame_log import FrameLog
from pagewire_frontend.session.events import OnText


class LogSource:
    """The source of a LiveStream: the events of a log from number `first` on."""

    text_line: TextLine | None = None

    def __init__(self, log: FrameLog, first: int) -> None:
        self._log = log
        self._first = first
        self._on_ready: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the last event was taken."""
        return self._log.is_ended and self._first >= len(self._log.frames)

    def listen(self, on_ready: Callable[[], None], on_text: OnText) -> None:
        """Call `on_ready` whenever there are events to take, and at once if there are already."""
        self._on_ready = on_ready
        self._log.add_listener(on_ready)
        if self._log.is_ended or self._first < len(self._log.frames):
            on_ready()

    def take(self) -> bytes:
        """Return the next events, as many as are given together."""
        ready = self._log.batch(self._first)
        self._first += len(ready)
        if self._first < len(self._log.frames) and self._on_ready is not None:
            self._on_ready()
        return b"".join(ready)

    async def wait_first(self) -> bool:
        """Wait until an event is there; return whether one is, or the log has ended without."""
        async for _ in self._log.follow(self._first):
            return True
        return False

    def close(self) -> None:
        """Listen no more; again is allowed."""
        if self._on_ready is not None:
            self._log.remove_listener(self._on_ready)
