"""Pieces of an assistant's message as they come out of the model's text. Plain data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of one tool call.

    Attributes:
        index: Number of the call in its message, from 0.
        arguments: The next characters of the arguments, which together are JSON text.
        call_id, name: With the first piece of a call, None afterwards.
    """

    index: int
    arguments: str = ""
    call_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class MessagePieces:
    """What a piece of text turned out to be; empty while that cannot be told yet."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCallDelta, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)


def joined(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Return the deltas with one per call: clients take no two for one call at once."""
    parts: dict[int, list[ToolCallDelta]] = {}
    for delta in deltas:
        parts.setdefault(delta.index, []).append(delta)
    return tuple(
        ToolCallDelta(
            index, "".join(delta.arguments for delta in some), some[0].call_id, some[0].name
        )
        for index, some in parts.items()
    )


def merged(first: MessagePieces, second: MessagePieces) -> MessagePieces:
    """Return two pieces as one."""
    return MessagePieces(
        first.reasoning + second.reasoning,
        first.content + second.content,
        joined([*first.calls, *second.calls]),
    )


class MessageReader(Protocol):
    """Takes the text of one choice apart, in any cut: the pieces joined are always the same."""

    @property
    def num_calls(self) -> int:
        """Tool calls so far; a choice with one that ends by itself ends with `tool_calls`."""
        ...

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        ...

    def finish(self) -> MessagePieces:
        """Return what was held back; the choice ended."""
        ...


class PlainReader:
    """All text is content."""

    num_calls = 0

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        return MessagePieces(content=text)

    def finish(self) -> MessagePieces:
        """Return nothing: no text is held back."""
        return MessagePieces()
