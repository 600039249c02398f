"""Logs the events of one response for any number of readers, which may be at different places."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import orjson

from pagewire_frontend.http.responses.output import Event


def frames(events: Sequence[Event]) -> list[bytes]:
    """Return each event with its type in front, as OpenAI's streams of responses have it."""
    return [
        b"event: " + event["type"].encode() + b"\ndata: " + orjson.dumps(event) + b"\n\n"
        for event in events
    ]


class ResponseEventLog:
    """Events of a response up to the last. Bounded by the output of its response."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.num_bytes = 0
        self._is_ended = False
        self._changed = asyncio.Event()

    def append(self, frames: Sequence[bytes]) -> None:
        """Add the next events as they are sent; the number of an event is its index."""
        self.frames.extend(frames)
        self.num_bytes += sum(map(len, frames))
        self._wake()

    def end(self) -> None:
        """Note that no more events come; again is allowed."""
        self._is_ended = True
        self._wake()

    async def follow(self, first: int) -> AsyncIterator[list[bytes]]:
        """Yield the events from number `first` on, ready ones together, to the last."""
        while True:
            if first < len(self.frames):
                ready = self.frames[first:]
                first += len(ready)
                yield ready
            elif self._is_ended:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        # Each change has an asyncio.Event of its own: readers that do not wait look again anyway.
        self._changed.set()
        self._changed = asyncio.Event()
