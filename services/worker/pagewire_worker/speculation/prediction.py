"""Drafts out of what the client expects the answer to be: OpenAI's `prediction`."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from pagewire_worker.speculation.ngram import num_matching
from pagewire_worker.speculation.proposer import NOTHING, Drafts, SequenceStart, Tokens
from pagewire_worker.speculation.token_index import TokenIndex

RUN: Final = 2
"""Tokens that have to match, where an output has left the prediction."""
TAIL: Final = 16
"""Tokens that are compared there at most."""


@dataclass(slots=True)
class _Predicted:
    """A prediction, and how far an output has come in it.

    Attributes:
        num_seen: Tokens of the sequence that were compared.
        place: The predicted token that is expected next; the last known one while `is_lost`.
        offered_at: Tokens of the sequence for which drafts were last found.
    """

    tokens: Tokens
    index: TokenIndex
    num_prompt: int
    num_seen: int
    place: int = 0
    is_lost: bool = False
    offered_at: int = -1


class PredictionFinder:
    """Follows outputs through predictions; one that has left its own is found again in it.

    Args:
        vocab_size: Tokens from here on are no tokens of the model: a prediction ends before them.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._slots: dict[int, _Predicted] = {}

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Take the prediction of the sequence of `slot`, if there is any."""
        self._slots.pop(slot, None)
        tokens = np.asarray(start.predicted_token_ids, dtype=np.int64)
        beyond = np.flatnonzero(tokens >= self._vocab_size)
        tokens = tokens[: beyond[0]] if len(beyond) else tokens
        if len(tokens):
            text = tokens.astype(np.int32)
            index = TokenIndex(RUN)
            index.follow(text)
            self._slots[slot] = _Predicted(text, index, start.num_prompt, start.num_prompt)

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`."""
        self._slots.pop(slot, None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._slots.clear()

    def has_found(self, slot: int, num_tokens: int, drafts: Drafts) -> bool:
        """Return whether `drafts` of `slot` behind `num_tokens` are predicted ones."""
        held = self._slots.get(slot)
        if held is None or held.offered_at != num_tokens:
            return False
        return np.array_equal(held.tokens[held.place : held.place + len(drafts)], drafts)

    def find(self, slot: int, tokens: Tokens, most: int) -> Drafts:
        """Return at most `most` predicted tokens for the places behind `tokens` [n]."""
        held = self._slots.get(slot)
        if held is None:
            return NOTHING
        self._follow(held, tokens)
        if held.is_lost:
            self._find_again(held, tokens)
        if held.is_lost:
            return NOTHING
        found: list[int] = held.tokens[held.place : held.place + most].tolist()
        if found:
            held.offered_at = len(tokens)
        return found

    def _follow(self, held: _Predicted, tokens: Tokens) -> None:
        """Compare what has come since the last time."""
        new = tokens[held.num_seen :]
        held.num_seen = len(tokens)
        if held.is_lost:
            return
        expected = held.tokens[held.place : held.place + len(new)]
        if np.array_equal(expected, new):
            held.place += len(new)
        else:
            held.is_lost = True

    def _find_again(self, held: _Predicted, tokens: Tokens) -> None:
        """Find the place whose tokens before it match most; of equal ones the nearest."""
        tail = tokens[held.num_prompt :][-TAIL:].tolist()[::-1]
        best, place = RUN - 1, 0
        for other in held.index.places_of(tail[RUN - 1 :: -1]) if len(tail) >= RUN else ():
            length = num_matching(tail, held.tokens, other)
            is_nearer = abs(other - held.place) < abs(place - held.place)
            if length > best or (length == best >= RUN and is_nearer):
                best, place = length, other
        if best >= RUN:
            held.place, held.is_lost = place, False
