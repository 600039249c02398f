"""Streams that have something to write are written together, once per turn of the event loop: all
of a step's tokens are in their sessions by then. Owns the list of those streams."""

import asyncio
from typing import Protocol


class Flushed(Protocol):
    """A stream that can be flushed; must not raise."""

    def fill(self) -> None:
        """Make ready what is to be written."""
        ...

    def write(self) -> None:
        """Write what was made ready."""
        ...


class FlushRounds:
    """One per event loop."""

    def __init__(self) -> None:
        self._filling: list[Flushed] = []
        self.writing: list[Flushed] = []
        """Streams to be written in the next round, which whoever finds none begins. Added to
        without a call: that happens for every token."""

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
        # What is asked for from here on is for the next round.
        filling, self._filling = self._filling, []
        writing, self.writing = self.writing, []
        for stream in filling:
            stream.fill()
        # Apart from that, so that one write follows the other closely: a client that falls asleep
        # between two of them is woken for each, which costs as much as the write.
        for stream in writing:
            stream.write()
