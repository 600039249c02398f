"""Follows test outputs through a grammar to find faults and slow grammars.

Outputs are random, of the longest tokens, or of the most expensive tokens. No check finds every
expensive grammar: it may hide its cost behind a text that no walk takes. So the worker bounds the
cost of masks, too.
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
"""Length of a walk. Some grammars exceed a limit with the first tokens; costs that depend on all of
an output grow fastest with long tokens."""

WALK_SECONDS: Final = 0.4
"""Most CPU time of a walk; the largest grammars in use take a quarter."""

TOKEN_SECONDS: Final = WALK_SECONDS / CHECKED_TOKENS
NUM_NEWEST: Final = 16
"""The search refuses a median of this many tokens above TOKEN_SECONDS; one may build a lexer."""

NUM_CANDIDATES: Final = 5
MAX_SEARCHED: Final = 256
MAX_FORCED: Final = 1024
SEARCH_SECONDS: Final = 0.4
"""Bounds of the search: tokens tried per place, places with a choice, places without one, and the
CPU time after which it ends without a fault."""

NOTABLE_SECONDS: Final = 0.0005
"""Costs that differ by less are equal, and the number of allowed next tokens decides. It may be
large inside an ambiguous part or behind it, so one search prefers many and one prefers few."""

IntArray = npt.NDArray[np.int64]


def find_fault(tokenizer: LLTokenizer, matcher: LLMatcher) -> str | None:
    """Return the fault of an output that `matcher` accepts, or None; `matcher` is not changed."""
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
    """Ways to choose tokens."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self._lengths = _token_lengths(tokenizer)
        self._dice = random.Random(0)

    def any(self, tokens: IntArray) -> int:
        """Return a random token."""
        return int(tokens[self._dice.randrange(len(tokens))])

    def long(self, tokens: IntArray) -> int:
        """Return one of the two longest, because the parser may merge repeated tokens."""
        return self._dice.choice(self.longest(tokens))

    def longest(self, tokens: IntArray) -> list[int]:
        """Return the two longest tokens, or the only token twice."""
        sizes = self._lengths[tokens]
        first = int(sizes.argmax())
        sizes[first] = -1
        second = int(sizes.argmax()) if len(tokens) > 1 else first
        return [int(tokens[first]), int(tokens[second])]

    def some(self, tokens: IntArray) -> list[int]:
        """Return the longest and some random tokens, without duplicates."""
        # Of indexes: a list of 200,000 tokens at every place would take seconds.
        indexes = self._dice.sample(range(len(tokens)), min(NUM_CANDIDATES, len(tokens)))
        drawn = [int(tokens[index]) for index in indexes]
        return list(dict.fromkeys([*self.longest(tokens), *drawn]))[:NUM_CANDIDATES]


def _walk(
    tokenizer: LLTokenizer, matcher: LLMatcher, pick: Callable[[IntArray], int]
) -> str | None:
    """Follow an output of tokens that `pick` chooses; return its fault, or None."""
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
    """Take the most expensive of some tokens at each place; return the fault if it gets too slow.

    Among equal costs, take the token with the most allowed next tokens, or the fewest if `openness`
    is -1.
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
            break  # this output would fail alone, without cost for others
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
    """A matcher after one more token, the allowed next tokens, and the CPU time of both."""

    matcher: LLMatcher
    tokens: IntArray
    seconds: float

    def rank(self, openness: int) -> tuple[bool, bool, int, bool, int]:
        """Return a key that prefers, in turn: no fault, more to come, higher cost, a choice,
        `openness`. A token that ends the output may look expensive once, and costs nothing more."""
        cost, num_tokens = int(self.seconds / NOTABLE_SECONDS), len(self.tokens)
        goes_on, is_open = num_tokens > 0, num_tokens > 1
        return not self.matcher.is_error(), goes_on, cost, is_open, openness * num_tokens


def _try(tokenizer: LLTokenizer, matcher: LLMatcher, token: int) -> _Tried:
    copy = matcher.deep_copy()
    seconds = _consume(copy, token)
    tokens, mask_seconds = _next_tokens(tokenizer, copy)
    return _Tried(copy, tokens, seconds + mask_seconds)


def _next_tokens(tokenizer: LLTokenizer, matcher: LLMatcher) -> tuple[IntArray, float]:
    """Return the allowed next tokens without those that end the output, and the CPU time of the
    mask."""
    if matcher.is_stopped():
        return np.zeros(0, dtype=np.int64), 0.0
    started = time.thread_time()
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    seconds = time.thread_time() - started
    is_allowed = np.unpackbits(bits, bitorder="little")
    is_allowed[tokenizer.eos_tokens] = 0
    # Of booleans numpy finds them several times as fast.
    return np.flatnonzero(is_allowed.view(np.bool_)), seconds


def _consume(matcher: LLMatcher, token: int) -> float:
    """Take a token; return the CPU time."""
    started = time.thread_time()
    matcher.consume_token(token)
    return time.thread_time() - started


def _too_ambiguous(seconds: float, num_tokens: int) -> str:
    return f"too ambiguous: {seconds:.1f} s of CPU time to follow {num_tokens} tokens"


@lru_cache(maxsize=1)
def _token_lengths(tokenizer: LLTokenizer) -> IntArray:
    """Return the number of bytes of each token."""
    num_tokens = tokenizer.vocab_size
    return np.array([len(tokenizer.decode_bytes([token])) for token in range(num_tokens)])
