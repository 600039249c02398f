"""Collects the pieces that a reader has found since it was last asked. Owns numbers and ids of
calls; knows no format."""

import secrets
import string
from collections.abc import Callable
from typing import Final

from pagewire_frontend.message.pieces import MessagePieces, ToolCallDelta, joined

_ALPHABET: Final = string.ascii_letters + string.digits


def new_call_id() -> str:
    """Return call_ and 24 letters and digits, as OpenAI's look."""
    return "call_" + _draw(24)


def new_short_id() -> str:
    """Return 9 letters and digits: mistral's templates refuse anything else."""
    return _draw(9)


def _draw(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


class CallWriter:
    """Content and calls in their order.

    White space is kept until it is known whether a call follows: what stands between a text and a
    call, or behind the last call, belongs to neither.
    """

    def __init__(self, new_id: Callable[[], str], max_calls: int | None = None) -> None:
        """Args: `new_id` names a call; calls beyond `max_calls` are dropped."""
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
        """Go on with the arguments of the last call."""
        if text and not self._is_dropping:
            self._calls.append(ToolCallDelta(self.num_calls - 1, text))

    def end(self) -> None:
        """Let go of white space that no call follows."""
        if not self.num_calls:
            self._content.append(self._space)
        self._space = ""

    def take(self) -> MessagePieces:
        """Return what came since the last time; the deltas of one call joined."""
        pieces = MessagePieces(content="".join(self._content), calls=joined(self._calls))
        self._content, self._calls = [], []
        return pieces
