"""Send queue of a stream to one peer: bounded in bytes, paced by the task that writes.

The rules of every stream between services:

- A message has at most MESSAGE_BYTES, half of gRPC's limit. Larger data is split, or waits for the
  next message.
- A burst of Pagewire's own is never refused and never ends a stream: it is queued as an iterator
  (`put_each`), and each message is made when the message before has been written.
- Messages that a client causes are refused (`offer`) while `max_bytes` wait already.
- A peer is too slow when it has read nothing for a time although messages wait
  (`stalled_seconds`); the number of waiting messages does not matter.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from pagewire_shared.errors import InternalError, PagewireError

MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of one message of a control stream."""


class _Sized(Protocol):
    def ByteSize(self) -> int:
        """Return the encoded size."""
        ...


Message = TypeVar("Message", bound=_Sized)


class SendQueue(Generic[Message]):
    """A queue of messages with one reader, which writes them to the stream.

    Args:
        max_bytes: Bytes of waiting messages beyond which `offer` refuses more.
        message_bytes: Most bytes of one message.
        clock: Returns seconds.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        message_bytes: int = MESSAGE_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._entries: deque[tuple[Message, int] | Iterator[Message]] = deque()
        self._num_bytes = 0
        self._max_bytes = max_bytes
        self._message_bytes = message_bytes
        self._clock = clock
        self._taken_at = clock()
        self._is_closed = False
        self._error: PagewireError | None = None
        self._has_news = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the queue drops further messages."""
        return self._is_closed

    @property
    def num_bytes(self) -> int:
        """Bytes of the waiting messages; messages of iterators do not exist yet."""
        return self._num_bytes

    @property
    def stalled_seconds(self) -> float:
        """Seconds since the writer took a message although messages wait; else 0."""
        return self._clock() - self._taken_at if self._entries else 0.0

    def offer(self, message: Message) -> bool:
        """Queue a message if less than `max_bytes` wait; return whether it was queued or dropped.

        Raises:
            InternalError: The message is larger than `message_bytes`.
        """
        if not self._is_closed and self._num_bytes >= self._max_bytes:
            return False
        self.put(message)
        return True

    def put(self, message: Message) -> None:
        """Queue a message; a closed queue drops it.

        Raises:
            InternalError: The message is larger than `message_bytes`.
        """
        if self._is_closed:
            return
        num_bytes = self._check(message)
        self._append((message, num_bytes))
        self._num_bytes += num_bytes

    def put_each(self, messages: Iterator[Message]) -> None:
        """Queue an iterator, whose messages are made one by one when the writer needs them."""
        if not self._is_closed:
            self._append(messages)

    def close(self, error: PagewireError | None = None) -> None:
        """End the stream, with the status of `error` if any, and drop all waiting messages."""
        if not self._is_closed:
            self._is_closed = True
            self._error = error
            self._entries.clear()
            self._num_bytes = 0
            self._has_news.set()

    async def drain(self) -> AsyncIterator[Message]:
        """Yield messages until the queue is closed, then raise the error given to `close`."""
        while not self._is_closed:
            message = self._next()
            if message is None:
                self._has_news.clear()
                await self._has_news.wait()
            else:
                yield message
        if self._error is not None:
            raise self._error

    def _append(self, entry: tuple[Message, int] | Iterator[Message]) -> None:
        if not self._entries:
            self._taken_at = self._clock()
        self._entries.append(entry)
        self._has_news.set()

    def _next(self) -> Message | None:
        self._taken_at = self._clock()
        while self._entries:
            entry = self._entries[0]
            if isinstance(entry, tuple):
                self._entries.popleft()
                message, num_bytes = entry
                self._num_bytes -= num_bytes
                return message
            made = next(entry, None)
            if made is not None:
                self._check(made)
                return made
            # The iterator may have closed the queue, which removes all entries.
            if self._entries and self._entries[0] is entry:
                self._entries.popleft()
        return None

    def _check(self, message: Message) -> int:
        num_bytes = message.ByteSize()
        if num_bytes > self._message_bytes:
            raise InternalError(
                f"a message of {num_bytes} bytes is larger than {self._message_bytes}"
            )
        return num_bytes
