"""Logs the events of one stream for any number of readers, which may be at different places."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol

from pagewire_frontend.http.streaming.event_stream import OnEvent, TextLine, is_ready_line

BATCH_BYTES: Final = 64 * 1024
"""A reader gets about so many bytes at a time: a slow one holds no copy of the whole log."""


COUNTED_BYTES: Final = 1024
"""Bytes of texts that are counted at a time, beforehand."""
TEXT_BYTES: Final = 64
"""Memory of the event of a text beside its characters, about."""
CHARACTER_BYTES: Final = 4
"""Most memory of a character."""


class LogListener(Protocol):
    """A reader that hears of what there is to read. Its methods must not raise."""

    def on_change(self) -> None:
        """Look at the log again."""
        ...

    def fall_behind(self, first: int) -> None:
        """Read from event number `first` on: events are not pushed any more."""
        ...


class FrameLog:
    """Events up to the last. Its owner bounds them."""

    def __init__(self) -> None:
        # As they are sent, or the texts that they are made of, by `_line` and `_head`: a tenth of
        # the size.
        self._events: list[bytes | str] = []
        self._line: TextLine | None = None
        self._head = b""
        self._is_ended = False
        # Made for those who wait for it: most events come while none does.
        self._changed: asyncio.Event | None = None
        # Both are replaced and not changed, because they may be iterated over.
        self._listeners: list[LogListener] = []
        self._live: dict[OnEvent, LogListener] = {}

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_ended(self) -> bool:
        """Whether no more events come."""
        return self._is_ended

    def append(self, frames: Sequence[bytes]) -> None:
        """Add the next events as they are sent; the number of an event is its index."""
        first = len(self._events)
        self._events.extend(frames)
        self._wake(first)

    def text_adder(
        self, line: TextLine, head: bytes, count: Callable[[int], None]
    ) -> Callable[[str], None]:
        """Return a function that adds the event of a text, and pushes it to readers that have all
        before it: the path of nearly every token, and so one function.

        Args:
            line: Makes the event.
            head: What stands in front of it, with `%d` for its number.
            count: Called with the bytes that texts take at most, before they are added. What it
                raises is raised.
        """
        events, is_ready, room = self._events, is_ready_line(line), 0
        if is_ready:
            self._line, self._head = line, head

        def add(text: str) -> None:
            nonlocal room
            event = line(text)
            if not event:
                return
            number = len(events)
            frame = head % number + event
            num_bytes = TEXT_BYTES + (CHARACTER_BYTES * len(text) if is_ready else len(frame))
            if num_bytes > room:
                count(num_bytes + COUNTED_BYTES)
                room += num_bytes + COUNTED_BYTES
            room -= num_bytes
            events.append(text if is_ready else frame)
            if self._live:
                for push in self._live:
                    if not push(frame):
                        self._fall_behind(push, number)
            if self._listeners or self._changed is not None:
                self._wake_waiting()

        return add

    def end(self) -> None:
        """Note that no more events come; again is allowed."""
        self._is_ended = True
        self._wake(len(self._events))

    async def follow(self, first: int) -> AsyncIterator[list[bytes]]:
        """Yield the events from number `first` on, ready ones together, to the last.

        Together are as many as fit in BATCH_BYTES, and one at least.
        """
        while True:
            if first < len(self._events):
                ready = self.batch(first)
                first += len(ready)
                yield ready
            elif self._is_ended:
                return
            else:
                if self._changed is None:
                    self._changed = asyncio.Event()
                await self._changed.wait()

    def batch(self, first: int) -> list[bytes]:
        """Return the events from number `first` on that are given together."""
        found: list[bytes] = []
        num_bytes = 0
        for number in range(first, len(self._events)):
            if num_bytes >= BATCH_BYTES:
                break
            found.append(self._frame(number))
            num_bytes += len(found[-1])
        return found

    def since(self, first: int) -> list[bytes]:
        """Return all events from number `first` on."""
        return [self._frame(number) for number in range(first, len(self._events))]

    def _frame(self, number: int) -> bytes:
        event = self._events[number]
        if isinstance(event, bytes):
            return event
        assert self._line is not None, "texts come from text_adder"
        return self._head % number + self._line(event)

    def add_listener(self, listener: LogListener) -> None:
        """Tell `listener` of every change."""
        self._listeners = [*self._listeners, listener]

    def go_live(self, listener: LogListener, push: OnEvent) -> None:
        """Push events to a listener that has all there are, for as long as it takes them."""
        self._listeners = [one for one in self._listeners if one is not listener]
        self._live = {**self._live, push: listener}

    def remove_listener(self, listener: LogListener) -> None:
        """Tell `listener` nothing more; again is allowed."""
        self._listeners = [one for one in self._listeners if one is not listener]
        self._live = {push: one for push, one in self._live.items() if one is not listener}

    def _fall_behind(self, push: OnEvent, first: int) -> None:
        listener = self._live[push]
        self._live = {one: other for one, other in self._live.items() if one != push}
        self._listeners = [*self._listeners, listener]
        listener.fall_behind(first)

    def _wake(self, first: int) -> None:
        """Say that there is something from event number `first` on, or the end."""
        waiting = self._listeners
        for push in self._live:
            self._fall_behind(push, first)
        for listener in waiting:
            listener.on_change()
        self._wake_followers()

    def _wake_waiting(self) -> None:
        for listener in self._listeners:
            listener.on_change()
        self._wake_followers()

    def _wake_followers(self) -> None:
        # Each change has an asyncio.Event of its own: readers that do not wait look again anyway.
        if self._changed is not None:
            self._changed.set()
            self._changed = None
