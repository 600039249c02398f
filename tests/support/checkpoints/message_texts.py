"""Texts of models with tool calls, in each format, and what they are made of."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pagewire_frontend.message.pieces import MessagePieces, MessageReader, merged


@dataclass(frozen=True)
class Read:
    """What a reader made of a text; each call as name and arguments."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]


def read_pieces(reader: MessageReader, texts: Iterable[str]) -> list[MessagePieces]:
    """Return the pieces of each text, and at last of the end."""
    return [*(reader.push(text) for text in texts), reader.finish()]


def read(reader: MessageReader, texts: Sequence[str]) -> Read:
    """Return what a reader makes of a text that comes in these pieces."""
    pieces = MessagePieces()
    for piece in read_pieces(reader, texts):
        pieces = merged(pieces, piece)
    assert [call.index for call in pieces.calls] == list(range(reader.num_calls))
    ids = [call.call_id for call in pieces.calls]
    assert len(set(ids)) == len(ids)
    calls = tuple((str(call.name), call.arguments) for call in pieces.calls)
    return Read(pieces.reasoning, pieces.content, calls)


def cut(text: str, places: Sequence[int]) -> list[str]:
    """Return `text` in pieces that begin at these places."""
    borders = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(borders)]
