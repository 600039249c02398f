"""What waits to be written to one stream: bounded in messages and bytes, never awaited by who
fills it."""

import asyncio
from collections import deque
from typing import Generic, Protocol, TypeVar


class _Sized(Protocol):
    def ByteSize(self) -> int:
        """Return the encoded size."""
        ...


Message = TypeVar("Message", bound=_Sized)


class Outbox(Generic[Message]):
    """A bounded queue with one reader."""

    def __init__(self, *, max_messages: int, max_bytes: int) -> None:
        self._messages: deque[tuple[Message, int]] = deque()
        self._num_bytes = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._filled = asyncio.Event()

    def offer(self, message: Message) -> bool:
        """Add a message; False when there is no room."""
        num_bytes = message.ByteSize()
        if self._messages and (
            len(self._messages) >= self._max_messages
            or self._num_bytes + num_bytes > self._max_bytes
        ):
            return False
        self._messages.append((message, num_bytes))
        self._num_bytes += num_bytes
        self._filled.set()
        return True

    async def take(self) -> Message:
        """Return the oldest message, waiting for one."""
        while not self._messages:
            self._filled.clear()
            await self._filled.wait()
        message, num_bytes = self._messages.popleft()
        self._num_bytes -= num_bytes
        return message
