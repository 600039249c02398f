"""Logs the events of one stream for any number of readers, which may be at different places."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

BATCH_BYTES: Final = 64 * 1024
"""A reader gets about so many bytes at a time: a slow one holds no copy of the whole log."""


class FrameLog:
    """Events up to the last. Its owner bounds them."""

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
        """Yield the events from number `first` on, ready ones together, to the last.

        Together are as many as fit in BATCH_BYTES, and one at least.
        """
        while True:
            if first < len(self.frames):
                end, num_bytes = first, 0
                while end < len(self.frames) and num_bytes < BATCH_BYTES:
                    num_bytes += len(self.frames[end])
                    end += 1
                ready, first = self.frames[first:end], end
                yield ready
            elif self._is_ended:
                return
            else:
                await self._changed.wait()

    def _wake(self) -> None:
        # Each change has an asyncio.Event of its own: readers that do not wait look again anyway.
        self._changed.set()
        self._changed = asyncio.Event()
