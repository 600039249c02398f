"""Streams that have something to write are written together, once per turn of the event loop: all
of a step's tokens are in their sessions by then. Owns the list of those streams."""

import asyncio
from typing import Protocol


class Flushed(Protocol):
    """A stream that can be flushed; must not raise."""

    def flush(self) -> None:
        """Write what is ready."""
        ...


class FlushRounds:
    """One per event loop."""

    def __init__(self) -> None:
        # A dict keeps the order in which streams became ready.
        self._marked: dict[Flushed, None] = {}

    def mark(self, stream: Flushed) -> None:
        """Have `stream` flushed in the next round."""
        if not self._marked:
            asyncio.get_running_loop().call_soon(self._flush)
        self._marked[stream] = None

    def _flush(self) -> None:
        marked, self._marked = self._marked, {}
        for stream in marked:
            stream.flush()
