"""The n-gram method: what followed the last tokens of a sequence where they occurred before.

This is prompt lookup decoding (Saxena, 2023) with the options of vLLM's `ngram` method. An index
per sequence grows with it, so a search takes the same time in short and long texts.
"""

from pagewire_worker.speculation.proposer import NOTHING, Drafts, SequenceStart, Tokens
from pagewire_worker.speculation.token_index import TokenIndex


class NgramFinder:
    """Finds the most recent of the longest earlier occurrences of the last tokens.

    Of many occurrences of the shortest match, only the most recent ones are compared.

    Args:
        shortest: Tokens that have to match at least, from 1.
        longest: Tokens that are compared at most.
    """

    def __init__(self, shortest: int, longest: int) -> None:
        self._shortest = shortest
        self._longest = longest
        self._indexes: dict[int, TokenIndex] = {}

    def begin(self, slot: int, start: SequenceStart) -> None:
        """Forget the sequence of `slot`, which gets another one."""
        self._indexes.pop(slot, None)

    def release(self, slot: int) -> None:
        """Forget the sequence of `slot`."""
        self._indexes.pop(slot, None)

    def clear(self) -> None:
        """Forget all sequences."""
        self._indexes.clear()

    def find(self, slot: int, tokens: Tokens, most: int) -> Drafts:
        """Return at most `most` drafts for the places behind `tokens` [n].

        A sequence that repeats itself goes on doing so: drafts beyond its end begin again at the
        token after the match.
        """
        index = self._indexes.get(slot)
        if index is None:
            index = self._indexes[slot] = TokenIndex(self._shortest)
        index.follow(tokens)
        best, best_place = self._shortest - 1, 0
        tail: list[int] = []
        for place in index.places():
            tail = tail or tokens[-self._longest :].tolist()[::-1]
            length = num_matching(tail, tokens, place)
            if length > best:
                best, best_place = length, place
                if length == self._longest:
                    break
        return repeated(tokens, best_place, most) if best_place else NOTHING


def num_matching(tail: list[int], tokens: Tokens, place: int) -> int:
    """Return how many tokens before `place` equal the last ones, whose `tail` is newest first."""
    there = tokens[max(0, place - len(tail)) : place].tolist()[::-1]
    for count, (token, other) in enumerate(zip(tail, there, strict=False)):
        if token != other:
            return count
    return min(len(tail), len(there))


def repeated(tokens: Tokens, place: int, most: int) -> Drafts:
    """Return the `most` tokens from `place` on, which begin again there at the end."""
    found: list[int] = tokens[place : place + most].tolist()
    period = len(found)
    while len(found) < most:
        found.append(found[len(found) - period])
    return found
