"""Logs the events of one stream for any number of readers, which may be at different places."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
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
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_ended(self) -> bool:
        """Whether no more events come."""
        return self._is_ended

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
                ready = self.batch(first)
                first += len(ready)
                yield ready
            elif self._is_ended:
                return
            else:
                await self._changed.wait()

    def batch(self, first: int) -> list[bytes]:
        """Return the events from number `first` on that are given together."""
        end, num_bytes = first, 0
        while end < len(self.frames) and num_bytes < BATCH_BYTES:
            num_bytes += len(self.frames[end])
            end += 1
        return self.frames[first:end]

    def add_listener(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever the log has changed; it must not raise."""
        self._listeners.append(on_change)

    def remove_listener(self, on_change: Callable[[], None]) -> None:
        """Undo `add_listener`; again is allowed."""
        if on_change in self._listeners:
            self._listeners.remove(on_change)

    def _wake(self) -> None:
        for on_change in self._listeners:
            on_change()
        # Each change has an asyncio.Event of its own: readers that do not wait look again anyway.
        self._changed.set()
        self._changed = asyncio.Event()
