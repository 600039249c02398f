"""Base of the readers of calls: a state machine over a buffer of text. A state looks only at the
beginning of the buffer, so the outcome does not depend on how the text was cut."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from pagewire_frontend.message.call_writer import CallWriter
from pagewire_frontend.message.pieces import MessagePieces


def num_held(text: str, marker: str) -> int:
    """Return the length of the longest end of `text` that begins `marker`, but is not all of it."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[len(text) - length :]):
            return length
    return 0


State = Callable[[], bool]
"""Takes from the buffer; returns false when it needs more text, or has come to the end."""


class TextMachine(ABC):
    """Base class of readers that are state machines."""

    def __init__(self, writer: CallWriter) -> None:
        self._writer = writer
        self._buffer = ""
        # Text that was taken from the buffer and is content if no call follows.
        self._held = ""
        self._is_ended = False
        self._state: State = self._begin

    @property
    def num_calls(self) -> int:
        """Tool calls so far."""
        return self._writer.num_calls

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        self._buffer += text
        self._run()
        return self._writer.take()

    def finish(self) -> MessagePieces:
        """Return the pieces that were held back."""
        self._is_ended = True
        self._run()
        self._writer.say(self._buffer)
        self._buffer = ""
        self._writer.end()
        return self._writer.take()

    def _run(self) -> None:
        while self._state():
            pass

    @abstractmethod
    def _begin(self) -> bool:
        """The state at the beginning of a message."""

    def _in_text(self) -> bool:
        """The state without a call: all text is content, unless a format looks for more."""
        self._writer.say(self._drop(len(self._buffer)))
        return False

    def _hold(self, num_chars: int) -> None:
        self._held += self._drop(num_chars)

    def _skip_space(self) -> bool:
        """Hold the white space at the beginning of the buffer; return whether text follows it."""
        self._hold(self._space())
        return bool(self._buffer)

    def _behind_item(self, next_item: State) -> bool:
        """Take a comma, which the next item follows, or the end of a list of calls."""
        if not self._skip_space():
            return self._wait()
        if self._buffer[0] == ",":
            self._hold(1)
            self._state = next_item
            return True
        if self._buffer[0] == "]":
            self._drop(1)
            self._held = ""
        return self._give_up()

    def _wait(self) -> bool:
        """Wait for more text; at the end, held text is content."""
        return self._give_up() if self._is_ended else False

    def _give_up(self) -> bool:
        """Take held text as content: no call follows it."""
        self._writer.say(self._held)
        self._held = ""
        self._state = self._in_text
        return True

    def _drop(self, num_chars: int) -> str:
        """Take characters from the buffer and return them."""
        taken, self._buffer = self._buffer[:num_chars], self._buffer[num_chars:]
        return taken

    def _space(self) -> int:
        """Return the amount of white space at the beginning of the buffer."""
        return len(self._buffer) - len(self._buffer.lstrip())
