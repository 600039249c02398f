"""Outputs that a check of a grammar tries: at random, over the longest tokens, and after what costs
most. Knows matchers, compiles nothing.

No check finds all that is costly: a grammar may hide it behind a text that no walk takes. What
masks cost is therefore bounded on the worker, too.
"""

import random
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLTokenizer

CHECKED_TOKENS: Final = 96
"""How far a walk goes: some grammars exceed a limit with the first tokens, and what depends on all
of an output grows fastest with long ones."""

WALK_SECONDS: Final = 0.4
"""CPU time that a walk may take; the largest grammars in use take a quarter."""

TOKEN_SECONDS: Final = WALK_SECONDS / CHECKED_TOKENS
NUM_NEWEST: Final = 16
"""The search refuses what takes longer, as a median of so many tokens. One may build a lexer."""

NUM_CANDIDATES: Final = 5
MAX_SEARCHED: Final = 256
MAX_FORCED: Final = 1024
SEARCH_SECONDS: Final = 0.4
"""How many tokens the search tries at a place, how many places with a choice and without one it
goes through, and CPU time after which it ends, having found nothing."""

NOTABLE_SECONDS: Final = 0.0002
"""Costs that differ by less are the same: then what may follow decides. Many tokens may follow
inside of an ambiguous part, or behind it, so one search looks for many and one for few."""

IntArray = npt.NDArray[np.int64]


def find_fault(tokenizer: LLTokenizer, matcher: LLMatcher) -> str | None:
    """Return what is wrong with outputs from `matcher` on, which stays as it is; None if nothing
    was found."""
    picks = _Picks(tokenizer)
    for pick in (picks.any, picks.long):
        fault = _walk(tokenizer, matcher.deep_copy(), pick)
        if fault is not None:
            return fault
    for openness in (1, -1):
        fault = _search(tokenizer, matcher.deep_copy(), picks, openness)
        if fault is not None:
            return fault
    return None


class _Picks:
    """Ways to choose one of some tokens."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._lengths = _token_lengths(tokenizer)
        self._dice = random.Random(0)

    def any(self, tokens: IntArray) -> int:
        """Return one at random."""
        return int(tokens[self._dice.randrange(len(tokens))])

    def long(self, tokens: IntArray) -> int:
        """Return one of the two longest: the parser may merge what is repeated."""
        return self._dice.choice(self.longest(tokens))

    def longest(self, tokens: IntArray) -> list[int]:
        """Return the two longest, or the same one twice."""
        sizes = self._lengths[tokens]
        first = int(sizes.argmax())
        sizes[first] = -1
        second = int(sizes.argmax()) if len(tokens) > 1 else first
        return [int(tokens[first]), int(tokens[second])]

    def some(self, tokens: IntArray) -> list[int]:
        """Return the longest and some at random, none twice."""
        drawn = self._dice.sample(tokens.tolist(), min(NUM_CANDIDATES, len(tokens)))
        return list(dict.fromkeys([*self.longest(tokens), *drawn]))[:NUM_CANDIDATES]


def _walk(
    tokenizer: LLTokenizer, matcher: LLMatcher, pick: Callable[[IntArray], int]
) -> str | None:
    """Take tokens that do not end the output, each as `pick` says; return what goes wrong."""
    seconds = 0.0
    for taken in range(CHECKED_TOKENS):
        tokens, cost = _next_tokens(tokenizer, matcher)
        seconds += cost
        if len(tokens) == 0:
            break
        seconds += _consume(matcher, pick(tokens))
        if seconds > WALK_SECONDS:
            return _too_ambiguous(seconds, taken + 1)
    return matcher.get_error() if matcher.is_error() else None


def _search(tokenizer: LLTokenizer, matcher: LLMatcher, picks: _Picks, openness: int) -> str | None:
    """Take the token that costs most of some at each place; return whether that gets too slow.

    Where costs are the same the one is taken behind which most tokens may follow, or fewest if
    `openness` is -1.
    """
    tokens, seconds = _next_tokens(tokenizer, matcher)
    newest: deque[float] = deque(maxlen=NUM_NEWEST)
    num_free = num_forced = 0
    while len(tokens) > 0 and num_free < MAX_SEARCHED and num_forced < MAX_FORCED:
        is_free = len(tokens) > 1 and len(matcher.compute_ff_bytes()) == 0
        num_free, num_forced = num_free + is_free, num_forced + (not is_free)
        tried = [
            _try(tokenizer, matcher, token)
            for token in (picks.some(tokens) if is_free else picks.longest(tokens)[:1])
        ]
        best = max(tried, key=lambda one: one.rank(openness))
        if best.matcher.is_error():
            break  # this output would fail alone, and costs nobody anything
        newest.append(best.seconds)
        if len(newest) == NUM_NEWEST and statistics.median(newest) > TOKEN_SECONDS:
            return _too_ambiguous(sum(newest), NUM_NEWEST)
        seconds += sum(one.seconds for one in tried)
        if seconds > SEARCH_SECONDS:
            break
        matcher, tokens = best.matcher, best.tokens
    return None


@dataclass(frozen=True, slots=True)
class _Tried:
    """A matcher behind one more token, the tokens that may follow, and the CPU time of both."""

    matcher: LLMatcher
    tokens: IntArray
    seconds: float

    def rank(self, openness: int) -> tuple[bool, int, bool, int]:
        """Higher for what does not fail, costs more, does not end, or leaves more or less open."""
        cost, num_tokens = int(self.seconds / NOTABLE_SECONDS), len(self.tokens)
        return not self.matcher.is_error(), cost, num_tokens > 1, openness * num_tokens


def _try(tokenizer: LLTokenizer, matcher: LLMatcher, token: int) -> _Tried:
    copy = matcher.deep_copy()
    seconds = _consume(copy, token)
    tokens, mask_seconds = _next_tokens(tokenizer, copy)
    return _Tried(copy, tokens, seconds + mask_seconds)


def _next_tokens(tokenizer: LLTokenizer, matcher: LLMatcher) -> tuple[IntArray, float]:
    """Return the tokens that may come next and do not end the output, and the CPU time of their
    mask."""
    if matcher.is_stopped():
        return np.zeros(0, dtype=np.int64), 0.0
    started = time.thread_time()
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    seconds = time.thread_time() - started
    is_allowed = np.unpackbits(bits, bitorder="little")
    is_allowed[tokenizer.eos_tokens] = 0
    return np.flatnonzero(is_allowed), seconds


def _consume(matcher: LLMatcher, token: int) -> float:
    """Take a token; return the CPU time."""
    started = time.thread_time()
    matcher.consume_token(token)
    return time.thread_time() - started


def _too_ambiguous(seconds: float, num_tokens: int) -> str:
    return f"too ambiguous: {seconds:.1f} s of CPU time to follow {num_tokens} tokens"


@lru_cache(maxsize=1)
def _token_lengths(tokenizer: LLTokenizer) -> IntArray:
    """Return the bytes of each token."""
    num_tokens = tokenizer.vocab_size
    return np.array([len(tokenizer.decode_bytes([token])) for token in range(num_tokens)])
