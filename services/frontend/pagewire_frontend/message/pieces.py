"""Pieces of an assistant's message, and the interface of the readers that find them in a model's
text."""

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
    """The parts of a piece of text; empty while the text is ambiguous.

    Attributes:
        begins: This is the beginning of another message of the answer.
        parts: The same in the order of the answer, where a format has several messages.
    """

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCallDelta, ...] = ()
    begins: bool = False
    parts: "tuple[MessagePieces, ...]" = ()

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)


def joined(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCallDelta, ...]:
    """Return the deltas with one per call: clients accept no two for one call at once."""
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
        parts=first.parts + second.parts,
    )


class MessageReader(Protocol):
    """Parses the text of one choice. The pieces joined do not depend on how the text was cut."""

    @property
    def num_calls(self) -> int:
        """Tool calls so far; a choice with one that ends by itself ends with `tool_calls`."""
        ...

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        ...

    def finish(self) -> MessagePieces:
        """Return the pieces that were held back; the choice ended."""
        ...


class PlainReader:
    """Takes all text as content."""

    num_calls = 0

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        return MessagePieces(content=text)

    def finish(self) -> MessagePieces:
        """Return nothing: no text is held back."""
        return MessagePieces()
