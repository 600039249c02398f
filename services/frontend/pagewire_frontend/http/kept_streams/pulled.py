"""Takes events from a source where they come, without a task switch for each."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from pagewire_frontend.http.streaming.event_stream import TextLine
from pagewire_frontend.http.streaming.live_stream import ReadySource


class PulledSource(ReadySource, Protocol):
    """A source of events that are pulled."""

    def take_chunks(self) -> bytes:
        """Return the events that are ready. Raises PagewireError: nothing more comes."""
        ...


class PullSink(Protocol):
    """Takes the events that are pulled. What its methods raise ends the pull."""

    def append(self, ready: bytes) -> None:
        """Take whole events, several together."""
        ...

    def text_adder(self, line: TextLine) -> Callable[[str], None]:
        """Return a function that takes a text, of which `line` makes the event."""
        ...


class Pull:
    """Hands all events of a source to a sink."""

    def __init__(self, source: PulledSource, sink: PullSink) -> None:
        self._source = source
        self._sink = sink
        self._add: Callable[[str], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._is_due = False

    async def run(self) -> None:
        """Return when the last event was appended. Raises what the source or `append` raised."""
        self._source.listen(self._notice, self._offer)
        await self._end

    def _notice(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take)

    def _offer(self, text: str) -> bool:
        """Take text directly, past the buffer of the source."""
        add = self._add
        if add is None or self._is_due:
            return False
        try:
            add(text)
        except Exception as error:  # noqa: BLE001 - raised by run
            self._fail(error)
        return True

    def _fail(self, error: Exception) -> None:
        self._add = None
        self._end.set_exception(error)

    def _take(self) -> None:
        self._is_due = False
        if self._end.done():
            return
        try:
            ready = self._source.take_chunks()
            if ready:
                self._sink.append(ready)
        except Exception as error:  # noqa: BLE001 - raised by run
            self._fail(error)
            return
        if self._source.is_over:
            self._add = None
            self._end.set_result(None)
        elif self._add is None and self._source.text_line is not None:
            self._add = self._sink.text_adder(self._source.text_line)
