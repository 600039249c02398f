"""Follows the output of one sequence through its grammar."""

import math
import time
from collections.abc import Iterator
from typing import Final

from llguidance import LLMatcher

from pagewire_shared.errors import InvalidRequestError
from pagewire_shared.sampling.grammar_source import (
    compile_grammar,
    first_reason,
    is_fault_of_output,
)
from pagewire_worker.grammars.compiled import CompiledGrammar

MOST_BEHIND: Final = 65
"""Tokens that one step samples for a sequence, at most."""


class GrammarError(Exception):
    """An output cannot be followed further; the text is one line."""


class GrammarMatcher:
    """The output so far, and a matcher that has consumed a part of it."""

    def __init__(self, grammar: CompiledGrammar, tokens: list[int]) -> None:
        self._grammar = grammar
        self._tokens = tokens
        self._num_consumed = 0
        self._num_ahead = 0
        self._matcher: LLMatcher | None = None
        self._prototype = grammar.prototype

    @property
    def num_tokens(self) -> int:
        """Length of the output."""
        return len(self._tokens)

    @property
    def tokens(self) -> list[int]:
        """The output; the caller must not change it."""
        return self._tokens

    @property
    def is_near_end(self) -> bool:
        """Whether little of the output is left to consume: no more than one step has sampled."""
        return self._matcher is not None and self.num_tokens - self._num_consumed <= MOST_BEHIND

    def copy(self) -> "GrammarMatcher":
        """Return a GrammarMatcher for another sequence with the same output."""
        return GrammarMatcher(self._grammar, list(self._tokens))

    def append(self, token: int) -> None:
        """Append a token to the output."""
        self._tokens.append(token)

    def replace(self, tokens: list[int]) -> None:
        """Set the output to `tokens`; keep the matcher if the part it has consumed is equal."""
        if tokens[: self._num_consumed] != self._tokens[: self._num_consumed]:
            self._matcher = None
        self._tokens = tokens

    @property
    def matcher(self) -> LLMatcher:
        """The matcher, as far as `catch_up` has brought it."""
        assert self._matcher is not None
        return self._matcher

    def catch_up(self, seconds: float = math.inf) -> bool:
        """Bring the matcher towards the end of the output, for at most `seconds` of CPU time.

        Returns whether it has reached the end.

        Raises:
            GrammarError: A token of the output is not in the grammar, or a limit was exceeded even
                with a new matcher.
        """
        if self._matcher is None:
            self._begin_at(self._grammar.prototype)
        until = time.thread_time() + seconds
        try:
            while self._num_consumed < len(self._tokens):
                self._consume(self.matcher, self._tokens[self._num_consumed])
                self._num_consumed += 1
                if seconds < math.inf and time.thread_time() > until:
                    break
        except GrammarError as error:
            if is_fault_of_output(str(error)):
                raise
            self.start_over()
        return self._num_consumed == len(self._tokens)

    def go_ahead(self, token: int) -> bool:
        """Bring a matcher that is at the end of the output behind a further, guessed `token`.

        Returns whether it may follow; if not, call `go_back` next.
        """
        if self.matcher.is_stopped():
            return self._may_end_with(token)
        if not self.matcher.consume_token(token):
            return False
        self._num_ahead += 1
        return True

    def go_back(self) -> None:
        """Bring the matcher back to the end of the output, from behind all guessed tokens."""
        num_ahead, self._num_ahead = self._num_ahead, 0
        matcher = self.matcher
        if (num_ahead and not matcher.rollback(num_ahead)) or matcher.is_error():
            # A limit that only a guess exceeds is no fault of the output: begin anew.
            self._matcher = None

    def start_over(self) -> LLMatcher:
        """Return a matcher at the end of the output, made anew from the first token.

        It has a mask, and shares nothing with a failed matcher.

        Raises:
            GrammarError: This output is at fault, not another one of the same grammar.
        """
        reason = ""
        for prototype in self._other_prototypes():
            self._begin_at(prototype)
            try:
                self._consume_all()
            except GrammarError as error:
                reason = str(error)
                continue
            matcher = self.matcher
            matcher.compute_bitmask()
            if not matcher.is_error():
                self._grammar.prototype = prototype
                return matcher
            reason = first_reason(matcher)
        raise GrammarError(reason)

    def _other_prototypes(self) -> Iterator[LLMatcher]:
        """Yield the prototype that replaced ours, if there is one, and then a new prototype."""
        if self._grammar.prototype is not self._prototype:
            yield self._grammar.prototype
        try:
            yield compile_grammar(self._grammar.tokenizer, self._grammar.params)
        except InvalidRequestError as error:
            raise GrammarError(error.message) from error

    def _consume_all(self) -> None:
        for token in self._tokens[self._num_consumed :]:
            self._consume(self.matcher, token)
            self._num_consumed += 1

    def _begin_at(self, prototype: LLMatcher) -> None:
        self._prototype = prototype
        self._matcher = prototype.deep_copy()
        self._num_consumed = 0

    def _may_end_with(self, token: int) -> bool:
        return token in self._grammar.tokenizer.eos_tokens

    def _consume(self, matcher: LLMatcher, token: int) -> None:
        # After its end an output continues only with end-of-sequence tokens, without the matcher.
        if matcher.is_stopped() and not matcher.is_error():
            if not self._may_end_with(token):
                raise GrammarError(f"token {token} comes after the end of the output")
        elif not matcher.consume_token(token):
            raise GrammarError(first_reason(matcher))
