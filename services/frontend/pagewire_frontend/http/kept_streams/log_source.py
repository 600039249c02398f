"""Reads the log of a kept stream as it is written, for one connection."""

from collections.abc import Callable

from pagewire_frontend.http.streaming.event_stream import OnEvent, TextLine
from pagewire_frontend.http.streaming.frame_log import FrameLog
from pagewire_frontend.session.events import OnText


class LogSource:
    """The source of a LiveStream: the events of a log from number `first` on."""

    text_line: TextLine | None = None

    def __init__(self, log: FrameLog, first: int) -> None:
        self._log = log
        self._first = first
        self._on_ready: Callable[[], None] | None = None
        self._on_event: OnEvent | None = None
        self._is_live = False

    @property
    def is_over(self) -> bool:
        """Whether the last event was taken."""
        return self._log.is_ended and self._first >= len(self._log)

    def listen(
        self, on_ready: Callable[[], None], on_text: OnText, on_event: OnEvent | None = None
    ) -> None:
        """Call `on_ready` whenever there are events to take, and at once if there are already;
        events behind those that were taken are offered to `on_event`."""
        self._on_ready, self._on_event = on_ready, on_event
        self._log.add_listener(self)
        if self._log.is_ended or self._first < len(self._log):
            on_ready()
        else:
            self._try_live()

    def on_change(self) -> None:
        """Say that there are events to take."""
        assert self._on_ready is not None, "listens"
        self._on_ready()

    def fall_behind(self, first: int) -> None:
        """Take the events from number `first` on."""
        self._first, self._is_live = first, False
        self.on_change()

    def take(self) -> bytes:
        """Return the next events, as many as are given together."""
        if self._is_live:
            return b""
        ready = self._log.batch(self._first)
        self._first += len(ready)
        if self._first < len(self._log):
            if self._on_ready is not None:
                self._on_ready()
        else:
            self._try_live()
        return b"".join(ready)

    def _try_live(self) -> None:
        """Have the next events pushed: what was taken is written before them."""
        # A stream that is made again may not have come to where this reader is.
        is_next = self._first == len(self._log)
        if is_next and self._on_event is not None and not self._log.is_ended:
            self._is_live = True
            self._log.go_live(self, self._on_event)

    async def wait_first(self) -> bool:
        """Wait until an event is there; return whether one is, or the log has ended without."""
        async for _ in self._log.follow(self._first):
            return True
        return False

    def close(self) -> None:
        """Listen no more; again is allowed."""
        self._log.remove_listener(self)
