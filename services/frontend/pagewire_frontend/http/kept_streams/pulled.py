"""Takes events from a source where they come, without a task switch for each."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from pagewire_frontend.http.streaming.live_stream import ReadySource


class PulledSource(ReadySource, Protocol):
    """A source of events that are pulled."""

    def take_chunks(self) -> bytes:
        """Return the events that are ready. Raises PagewireError: nothing more comes."""
        ...


class Pull:
    """Appends all events of a source to a log."""

    def __init__(self, source: PulledSource, append: Callable[[bytes], None]) -> None:
        """Create it.

        Args:
            append: Takes whole events. What it raises ends the pull.
        """
        self._source = source
        self._append = append
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
        line = self._source.text_line
        if line is None or self._is_due or self._end.done():
            return False
        try:
            self._append(line(text))
        except Exception as error:  # noqa: BLE001 - raised by run
            self._end.set_exception(error)
        return True

    def _take(self) -> None:
        self._is_due = False
        if self._end.done():
            return
        try:
            ready = self._source.take_chunks()
            if ready:
                self._append(ready)
        except Exception as error:  # noqa: BLE001 - raised by run
            self._end.set_exception(error)
            return
        if self._source.is_over:
            self._end.set_result(None)
