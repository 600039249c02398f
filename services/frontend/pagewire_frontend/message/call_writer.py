"""Collects the content and the calls that a reader has found. Numbers the calls and mints their
ids; knows no format."""

import secrets
import string
from collections.abc import Callable
from typing import Final

from pagewire_frontend.message.pieces import MessagePieces, ToolCallDelta, joined

_ALPHABET: Final = string.ascii_letters + string.digits


def new_call_id() -> str:
    """Return call_ and 24 letters and digits, the form of OpenAI's ids."""
    return "call_" + _draw(24)


def new_short_id() -> str:
    """Return 9 letters and digits: mistral's templates refuse anything else."""
    return _draw(9)


def _draw(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


class CallWriter:
    """Content and calls in their order.

    White space is held until it is known whether a call follows: white space between a text and a
    call, or behind the last call, belongs to neither.
    """

    def __init__(self, new_id: Callable[[], str], max_calls: int | None = None) -> None:
        """Create the call writer.

        Args:
            max_calls: Calls beyond are dropped; None for any number.
        """
        self._new_id = new_id
        self._max_calls = max_calls
        self.num_calls = 0
        self._is_dropping = False
        self._space = ""
        self._content: list[str] = []
        self._calls: list[ToolCallDelta] = []

    def say(self, text: str) -> None:
        """Take content."""
        text = self._space + text
        shown = text.rstrip()
        self._space = text[len(shown) :]
        self._content.append(shown)

    def begin_call(self, name: str) -> None:
        """Begin a call."""
        self._space = ""
        self._is_dropping = self._max_calls is not None and self.num_calls >= self._max_calls
        if not self._is_dropping:
            self._calls.append(ToolCallDelta(self.num_calls, "", self._new_id(), name))
            self.num_calls += 1

    def add_arguments(self, text: str) -> None:
        """Add the next characters of the arguments of the last call."""
        if text and not self._is_dropping:
            self._calls.append(ToolCallDelta(self.num_calls - 1, text))

    def end(self) -> None:
        """Release white space that no call follows."""
        if not self.num_calls:
            self._content.append(self._space)
        self._space = ""

    def take(self) -> MessagePieces:
        """Return the pieces since the last time; the deltas of one call are joined."""
        pieces = MessagePieces(content="".join(self._content), calls=joined(self._calls))
        self._content, self._calls = [], []
        return pieces
