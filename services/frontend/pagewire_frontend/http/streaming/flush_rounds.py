"""Writes all streams with new output together, once per turn of the event loop: all tokens of a
step are in their sessions by then."""

import asyncio
from typing import Protocol


class Flushed(Protocol):
    """A stream that can be flushed; must not raise."""

    def fill(self) -> None:
        """Take the events that are to be written."""
        ...

    def write(self) -> None:
        """Write the events that were taken."""
        ...


class FlushRounds:
    """The rounds of one event loop."""

    def __init__(self) -> None:
        self._filling: list[Flushed] = []
        self.writing: list[Flushed] = []
        """Streams to be written in the next round. The caller that adds the first begins the
        round; the list is added to without a call, because that happens for every token."""

    def begin(self) -> None:
        """Have a round come next in the event loop."""
        asyncio.get_running_loop().call_soon(self._flush)

    def fill(self, stream: Flushed) -> None:
        """Have `stream` filled and written in the next round."""
        self._filling.append(stream)
        if not self.writing:
            self.begin()
        self.writing.append(stream)

    def _flush(self) -> None:
        # Streams that are added from here on wait for the next round.
        filling, self._filling = self._filling, []
        writing, self.writing = self.writing, []
        for stream in filling:
            stream.fill()
        # A loop of its own, so that one write follows the other closely: a client that falls
        # asleep between two writes is woken for each, which costs as much as the write.
        for stream in writing:
            stream.write()
