"""Recent outputs by tenant and cache salt, and where runs of tokens are in them.

Memory is bounded twice: each scope, a tenant with one salt, keeps its newest tokens, and the scopes
that were used least recently are forgotten. Nothing of one scope is found for another.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from pagewire_worker.speculation.proposer import Tokens
from pagewire_worker.speculation.token_index import TokenIndex

Scope = tuple[str, bytes]
"""A tenant, and a hash of the tenant and a cache salt; the hash is empty without either."""

END_OF_OUTPUT: Final = -1
TEXT_TOKENS: Final = 2**15
"""Tokens that the outputs of one scope have together, at most: with their index, 400 KB."""
MOST_SCOPES: Final = 64
LONGEST_OUTPUT: Final = TEXT_TOKENS // 2 - 1
"""Newest tokens of an output that are kept."""


class TenantText:
    """The newest outputs of one scope, one after the other, END_OF_OUTPUT behind each.

    Args:
        run: Tokens of a run that is looked up.
        most_outputs: Outputs that are kept, at most.
    """

    def __init__(self, run: int, most_outputs: int) -> None:
        self._index = TokenIndex(run, TEXT_TOKENS)
        self._tokens = np.zeros(TEXT_TOKENS, dtype=np.int32)
        self._num_tokens = 0
        self._begins: deque[int] = deque()
        self._most_outputs = most_outputs

    @property
    def tokens(self) -> Tokens:
        """All tokens, [n]."""
        return self._tokens[: self._num_tokens]

    def places(self, run: Sequence[int]) -> Iterator[int]:
        """Yield the ends of runs that may equal `run`, newest first."""
        oldest = self._begins[0] if self._begins else self._num_tokens
        for place in self._index.places_of(run):
            if place - len(run) < oldest:
                return
            yield place

    def add(self, output: Sequence[int]) -> None:
        """Add an output, as far as its newest tokens may be kept."""
        kept = [*output[-LONGEST_OUTPUT:], END_OF_OUTPUT]
        if self._num_tokens + len(kept) > TEXT_TOKENS:
            self._forget_half()
        end = self._num_tokens + len(kept)
        self._tokens[self._num_tokens : end] = kept
        self._begins.append(self._num_tokens)
        self._num_tokens = end
        self._index.follow(self.tokens)
        while len(self._begins) > self._most_outputs:
            self._begins.popleft()

    def _forget_half(self) -> None:
        dropped = self._num_tokens - TEXT_TOKENS // 2
        if dropped > 0:
            self._tokens[: self._num_tokens - dropped] = self._tokens[dropped : self._num_tokens]
            self._num_tokens -= dropped
            self._begins = deque(one - dropped for one in self._begins if one >= dropped)


class TenantTexts:
    """The texts of all scopes.

    Args:
        run: Tokens of a run that is looked up.
        most_outputs: Outputs that are kept of a scope, at most; 0 for none at all.
    """

    def __init__(self, run: int, most_outputs: int) -> None:
        self._run = run
        self._most_outputs = most_outputs
        self._texts: OrderedDict[Scope, TenantText] = OrderedDict()

    def find(self, scope: Scope) -> TenantText | None:
        """Return the text of a scope; None if nothing is kept of it."""
        text = self._texts.get(scope)
        if text is not None:
            self._texts.move_to_end(scope)
        return text

    def add(self, scope: Scope, output: Sequence[int]) -> None:
        """Keep an output of a scope, if it is long enough to be found again."""
        if self._most_outputs == 0 or len(output) <= self._run:
            return
        text = self.find(scope)
        if text is None:
            text = self._texts[scope] = TenantText(self._run, self._most_outputs)
            if len(self._texts) > MOST_SCOPES:
                self._texts.popitem(last=False)
        text.add(output)
