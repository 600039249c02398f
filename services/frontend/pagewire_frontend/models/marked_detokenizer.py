"""Detokenizes an answer whose reader tells tokens from text: a mark stands for each such token."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pagewire_frontend.models.detokenizer import Detokenizer

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"

OpenDetokenizer = Callable[[Sequence[int]], Detokenizer]
"""From the ids before a text to its detokenizer."""


class MarkedDetokenizer:
    """Detokenizes the texts between marked tokens, each with a detokenizer of its own.

    A mark that occurs in a text becomes U+FFFD, so that marks mean tokens only.
    """

    def __init__(
        self, first_ids: Sequence[int], marks: Mapping[int, str], opened: OpenDetokenizer
    ) -> None:
        """Create the detokenizer.

        Args:
            first_ids: Token ids of the prompt.
            marks: One character by token id.
            opened: Makes the detokenizer of one text.
        """
        self._marks = marks
        self._hidden = {ord(mark): _REPLACEMENT for mark in marks.values()}
        self._opened = opened
        self._text = opened(first_ids)

    def push(self, token_id: int) -> str:
        """Return the text that `token_id` completes, or its mark."""
        mark = self._marks.get(token_id)
        if mark is None:
            return self._without_marks(self._text.push(token_id))
        text = self.flush()
        self._text = self._opened([token_id])
        return text + mark

    def flush(self) -> str:
        """Return the text of tokens that never became a whole character."""
        return self._without_marks(self._text.flush())

    def _without_marks(self, text: str) -> str:
        return text if text.isascii() else text.translate(self._hidden)
