"""Assigns log-probabilities of tokens to the visible text of an answer, after a reader has split
that text."""

from collections.abc import Callable, Sequence

from pagewire_frontend.session.journal_records import TokenLogprob


class TextLogprobs:
    """Log-probabilities of tokens whose text has not been assigned so far."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """Create the text logprobs.

        Args:
            token_bytes: Returns the bytes that a token stands for.
        """
        self._token_bytes = token_bytes
        self._waiting: list[TokenLogprob] = []

    def push(self, logprobs: Sequence[TokenLogprob]) -> None:
        """Take the next tokens; their text may come later."""
        self._waiting.extend(logprobs)

    def take(self, text: str) -> list[TokenLogprob]:
        """Return the tokens that make up `text`, and forget them and all before them.

        Where the text is not found as a whole, for example because a hidden token is in its midst,
        all waiting tokens are returned.
        """
        if not text or not self._waiting:
            return []
        wanted = text.encode()
        pieces = [self._token_bytes(item.token_id) for item in self._waiting]
        begin = b"".join(pieces).find(wanted)
        if begin < 0:
            taken, self._waiting = self._waiting, []
            return taken
        first, last = _covering(pieces, begin, begin + len(wanted))
        taken = self._waiting[first:last]
        self._waiting = self._waiting[last:]
        return taken


def _covering(pieces: Sequence[bytes], begin: int, end: int) -> tuple[int, int]:
    """Return the range of pieces (end excluded) that hold bytes `begin` to `end`."""
    first = last = offset = 0
    for index, piece in enumerate(pieces):
        if offset + len(piece) <= begin:
            first = index + 1
        if offset < end:
            last = index + 1
        offset += len(piece)
    return first, last
