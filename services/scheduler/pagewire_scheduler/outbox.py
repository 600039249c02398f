"""Messages on their way to one peer: bounded, so that a slow peer costs a known amount and nobody
waits."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from pagewire_shared.errors import PagewireError

Message = TypeVar("Message")


class Outbox(Generic[Message]):
    """Filled by the loop without waiting, emptied by the one writer of a stream."""

    def __init__(self, max_messages: int) -> None:
        self._max_messages = max_messages
        self._messages: deque[Message] = deque()
        self._has_news = asyncio.Event()
        self._is_closed = False
        self._error: PagewireError | None = None

    @property
    def is_closed(self) -> bool:
        """Whether nothing is taken any more."""
        return self._is_closed

    @property
    def stalled_seconds(self) -> float:
        """This one is bounded by messages, and not by time."""
        return 0.0

    def put(self, message: Message) -> bool:
        """Enter a message; False when there is no room. A closed outbox swallows it."""
        if self._is_closed:
            return True
        if len(self._messages) >= self._max_messages:
            return False
        self._messages.append(message)
        self._has_news.set()
        return True

    def close(self, error: PagewireError | None = None) -> None:
        """End the stream, with the status of `error` if any. What is not yet written is dropped."""
        if not self._is_closed:
            self._is_closed = True
            self._error = error
            self._messages.clear()
            self._has_news.set()

    async def drain(self) -> AsyncIterator[Message]:
        """Yield messages until closed, then raise the error it was closed with."""
        while True:
            while self._messages:
                yield self._messages.popleft()
            if self._is_closed:
                break
            self._has_news.clear()
            await self._has_news.wait()
        if self._error is not None:
            raise self._error
