"""Which tokens an answer's visible text is made of: a reader takes the text apart, so the
log-probabilities have to follow it. Pure."""

from collections.abc import Callable, Sequence

from pagewire_frontend.session.journal_records import TokenLogprob


class TextLogprobs:
    """Log-probabilities of tokens whose text was not dealt with yet."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        """Args: `token_bytes`, the bytes that a token stands for."""
        self._token_bytes = token_bytes
        self._waiting: list[TokenLogprob] = []

    def push(self, logprobs: Sequence[TokenLogprob]) -> None:
        """Take the next tokens; their text may come later."""
        self._waiting.extend(logprobs)

    def take(self, text: str) -> list[TokenLogprob]:
        """Return the tokens that `text` is made of, and forget them and all before them.

        Where the text is not found as it stands, as with a token that is not shown in its midst,
        it is made of all that wait.
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
    """Return which pieces, up to but not including the second, hold bytes `begin` to `end`."""
    first = last = offset = 0
    for index, piece in enumerate(pieces):
        if offset + len(piece) <= begin:
            first = index + 1
        if offset < end:
            last = index + 1
        offset += len(piece)
    return first, last
