"""Queue of the sessions that are to be submitted over one stream: resumed requests before new ones.
Each becomes a message when the stream asks for it. Knows no message and no stream."""

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from pagewire_frontend.session.session import Session
from pagewire_shared.errors import OverloadedError
from pagewire_shared.identity.ids import RequestId

MAX_NEW_BYTES: Final = 256 * 1024 * 1024
"""Bytes of the prompts of new requests that wait to be written, beyond which more are refused."""

MESSAGES_PER_TURN: Final = 64
"""Submits after which other waiting messages have their turn."""

_TOKEN_BYTES: Final = 4

Message = TypeVar("Message")


class SubmitQueue(Generic[Message]):
    """Holds sessions and no messages. A crowd that is submitted again so costs no memory here, and
    a request that ends while it waits is not written at all."""

    def __init__(
        self,
        pack: Callable[[Session], Message | None],
        send_each: Callable[[Iterator[Message]], None],
    ) -> None:
        """Create the submit queue.

        Args:
            pack: Makes the message of a session, None with nothing left to submit; does not raise.
            send_each: Gives the stream messages that are made one by one.
        """
        self.max_new_bytes = MAX_NEW_BYTES
        self._pack = pack
        self._send_each = send_each
        self._resumed: dict[RequestId, Session] = {}
        self._new: dict[RequestId, Session] = {}
        self._num_new_bytes = 0
        self._is_asked = False

    def __contains__(self, session: Session) -> bool:
        request_id = session.entry.request_id
        return request_id in self._resumed or request_id in self._new

    def add_new(self, session: Session) -> None:
        """Take a request that may still be refused.

        Raises:
            OverloadedError: Too much waits to be written.
        """
        if self._num_new_bytes >= self.max_new_bytes:
            raise OverloadedError("too many requests wait to be sent to the scheduler")
        self._num_new_bytes += _num_bytes(session)
        self._new[session.entry.request_id] = session
        self._ask()

    def add_resumed(self, session: Session) -> None:
        """Take a request that was accepted before: it waits as long as it must."""
        self._resumed[session.entry.request_id] = session
        self._ask()

    def forget(self, session: Session) -> None:
        """Forget a session, if it is here."""
        self._resumed.pop(session.entry.request_id, None)
        if self._new.pop(session.entry.request_id, None) is not None:
            self._num_new_bytes -= _num_bytes(session)

    def clear(self) -> None:
        """Drop all sessions: the stream ended."""
        self._resumed.clear()
        self._new.clear()
        self._num_new_bytes = 0
        self._is_asked = False

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._send_each(self._messages())

    def _messages(self) -> Iterator[Message]:
        """Yield the next messages; then queue again behind the other messages of the stream."""
        num_left = MESSAGES_PER_TURN
        while num_left and (queue := self._resumed or self._new):
            session = next(iter(queue.values()))
            self.forget(session)
            message = self._pack(session)
            if message is not None:
                num_left -= 1
                yield message
        self._is_asked = False
        if self._resumed or self._new:
            self._ask()


def _num_bytes(session: Session) -> int:
    return _TOKEN_BYTES * len(session.entry.prompt_token_ids)
