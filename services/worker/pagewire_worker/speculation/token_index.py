"""Finds where the last tokens of a growing text occurred before, without a walk over the text.

Runs of tokens are hashed; places of equal hashes form chains, newest first, as in LZ77 compressors
(Deutsch, 1996, RFC 1951, section 4). An index of n tokens takes 8 to 16 bytes each.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

FIRST_TOKENS: Final = 1024
MOST_TOKENS: Final = 2**15
"""Newest tokens that an index knows the places of; both are powers of two."""
MOST_PLACES: Final = 32
"""Places of one hash that are looked at: the newest ones."""
_BULK: Final = 128
"""Tokens that are added at once rather than one by one, from this number on."""
_FACTOR: Final = 0x9E3779B97F4A7C15
_WORD: Final = 2**64 - 1


class TokenIndex:
    """The runs of `length` tokens of one text.

    Args:
        length: Tokens of a run, at least 1.
        most_tokens: Newest tokens that are indexed, a power of two from FIRST_TOKENS on.
    """

    __slots__ = ("_before", "_heads", "_length", "_most", "_num_tokens", "_shift")

    def __init__(self, length: int, most_tokens: int = MOST_TOKENS) -> None:
        self._length = length
        self._most = most_tokens
        self._num_tokens = 0
        self._clear(min(FIRST_TOKENS, most_tokens))

    @property
    def num_tokens(self) -> int:
        """Tokens of the text."""
        return self._num_tokens

    def follow(self, tokens: npt.NDArray[np.int32]) -> None:
        """Make `tokens` [n] the text, which begins as before or is another, shorter one."""
        end, known = len(tokens), self._num_tokens
        if end > len(self._before) < self._most:
            capacity = min(self._most, 1 << (end - 1).bit_length())
            self._clear(capacity)
            known = 0
        elif end < known:
            self._clear(len(self._before))
            known = 0
        if end - known >= _BULK:
            self._clear(len(self._before))
            self._add_all(tokens)
            return
        begin = max(0, known - self._length + 1)
        newest = tokens[begin:].tolist()
        for place in range(max(known + 1, self._length), end + 1):
            self._add(newest[place - self._length - begin : place - begin], place)
        self._num_tokens = end

    def places(self) -> Iterator[int]:
        """Yield the ends of earlier runs that may equal the last one, newest first.

        Hashes are equal; tokens are to be compared. Places are counted in tokens, from the begin.
        """
        if self._num_tokens >= self._length:
            newest = self._before[self._num_tokens & (len(self._before) - 1)]
            yield from self._chain(newest)

    def places_of(self, run: Sequence[int]) -> Iterator[int]:
        """Yield the ends of runs that may equal `run` [length], newest first, as `places`."""
        return self._chain(self._heads[self._head(run)])

    def _chain(self, place: int) -> Iterator[int]:
        mask, oldest = len(self._before) - 1, self._num_tokens - len(self._before)
        for _ in range(MOST_PLACES):
            if place <= max(0, oldest):
                return
            yield place
            place = self._before[place & mask]

    def _clear(self, capacity: int) -> None:
        self._before = array("i", bytes(4 * capacity))
        self._heads = array("i", bytes(4 * capacity))
        self._shift = 64 - (capacity.bit_length() - 1)
        self._num_tokens = 0

    def _head(self, run: Sequence[int]) -> int:
        hashed = 0
        for token in run:
            hashed = ((hashed + token + 1) * _FACTOR) & _WORD
        return hashed >> self._shift

    def _add(self, run: Sequence[int], place: int) -> None:
        """Add a run that ends before `place`."""
        head = self._head(run)
        self._before[place & (len(self._before) - 1)] = self._heads[head]
        self._heads[head] = place

    def _add_all(self, tokens: npt.NDArray[np.int32]) -> None:
        """Add all runs of `tokens` [n] to an empty index."""
        end, capacity = len(tokens), len(self._before)
        self._num_tokens = end
        first = max(self._length, end - capacity + 1)
        places = np.arange(first, end + 1)
        hashed = np.zeros(len(places), dtype=np.uint64)
        for back in range(self._length, 0, -1):
            there = tokens[first - back : end + 1 - back].astype(np.uint64)
            hashed = (hashed + there + np.uint64(1)) * np.uint64(_FACTOR)
        heads = (hashed >> np.uint64(self._shift)).astype(np.int64)
        order = np.argsort(heads, kind="stable")
        ordered, is_same = places[order], np.diff(heads[order]) == 0
        before = np.frombuffer(self._before, dtype=np.int32)
        before[ordered[1:][is_same] & (capacity - 1)] = ordered[:-1][is_same]
        # Of places with one hash, the last one is the newest.
        is_last = np.append(~is_same, True)
        np.frombuffer(self._heads, dtype=np.int32)[heads[order][is_last]] = ordered[is_last]
