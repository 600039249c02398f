"""Leaves special tokens out of a text that had to be decoded with them."""

import re
from collections.abc import Collection

from pagewire_frontend.message.pieces import MessagePieces, MessageReader, merged


class HiddenText:
    """Removes given texts from a stream of text, however it is cut."""

    def __init__(self, hidden: Collection[str]) -> None:
        """Create the hidden text.

        Args:
            hidden: Texts to leave out; of several at one place the longest.
        """
        longest_first = sorted(hidden, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._begun = {text[:length] for text in hidden for length in range(1, len(text))}
        self._most_held = max(map(len, hidden), default=1) - 1
        self._held = ""

    def push(self, text: str) -> str:
        """Return the text that may be shown."""
        text = self._held + text
        begin = self._first_begun(text)
        self._held = text[begin:]
        return self._pattern.sub("", text[:begin])

    def finish(self) -> str:
        """Return the text that was held back."""
        held, self._held = self._held, ""
        return self._pattern.sub("", held)

    def _first_begun(self, text: str) -> int:
        """Return the index where the end of `text` begins that may become a hidden text, and that
        no whole hidden text before it overlaps."""
        first = max(0, len(text) - self._most_held)
        for match in self._pattern.finditer(text):
            begun = self._search(text, first, match.start() + 1)
            if begun is not None:
                return begun
            first = max(first, match.end())
        begun = self._search(text, first, len(text))
        return len(text) if begun is None else begun

    def _search(self, text: str, first: int, end: int) -> int | None:
        return next((at for at in range(first, end) if text[at:] in self._begun), None)


class HidingReader:
    """A reader that hides texts from its inner reader, and from the client.

    Args:
        unread: Texts that `inner` is not given.
        unshown: Texts that are neither content nor reasoning.
    """

    def __init__(
        self, inner: MessageReader, *, unread: Collection[str], unshown: Collection[str]
    ) -> None:
        self._inner = inner
        self._before = HiddenText(unread)
        self._content = HiddenText(unshown)
        self._reasoning = HiddenText(unshown)

    @property
    def num_calls(self) -> int:
        """Tool calls so far."""
        return self._inner.num_calls

    def push(self, text: str) -> MessagePieces:
        """Take the next text."""
        return self._shown(self._inner.push(self._before.push(text)))

    def finish(self) -> MessagePieces:
        """Return the pieces that were held back."""
        last = self._shown(self._inner.push(self._before.finish()))
        end = self._shown(self._inner.finish())
        held = MessagePieces(self._reasoning.finish(), self._content.finish())
        return merged(merged(last, end), held)

    def _shown(self, pieces: MessagePieces) -> MessagePieces:
        return MessagePieces(
            self._reasoning.push(pieces.reasoning), self._content.push(pieces.content), pieces.calls
        )
