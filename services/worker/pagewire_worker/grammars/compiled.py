"""Compiled grammars by id: the event loop adds them, the model thread reads them."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from llguidance import LLMatcher, LLTokenizer

from pagewire_shared.sampling.grammar_source import compile_grammar
from pagewire_shared.sampling.structured_outputs import StructuredOutputsParams

SLOW_MASK_SECONDS = 0.001
"""Far above grammars whose next tokens do not depend on all tokens before."""

NEWEST_SHARE = 0.125
"""Weight of one mask in the average: the first masks also build the lexer."""


@dataclass(slots=True)
class CompiledGrammar:
    """A grammar from which matchers are copied, one per sequence.

    Copies share the states of the lexer. Therefore a copy costs a microsecond, and a copy that runs
    out of states makes the others fail too. `prototype` is then replaced. `mask_seconds` is the
    average CPU time of its newest masks.
    """

    tokenizer: LLTokenizer
    params: StructuredOutputsParams
    prototype: LLMatcher = field(init=False)
    mask_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Compile. Raises InvalidRequestError."""
        self.prototype = compile_grammar(self.tokenizer, self.params)

    @property
    def is_slow(self) -> bool:
        """Whether a step should not wait for its masks."""
        return self.mask_seconds > SLOW_MASK_SECONDS

    def note_mask(self, seconds: float) -> None:
        """Add the CPU time of one mask to the average."""
        self.mask_seconds += (seconds - self.mask_seconds) * NEWEST_SHARE


class CompiledGrammars:
    """Grammars by id, each kept until it is released.

    An id is never reused within an attach, so a late release still means the same grammar.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._grammars: dict[bytes, CompiledGrammar] = {}

    def __len__(self) -> int:
        return len(self._grammars)

    def find(self, grammar_id: bytes) -> CompiledGrammar | None:
        """Return a grammar, or None."""
        with self._lock:
            return self._grammars.get(grammar_id)

    def add(self, grammar_id: bytes, grammar: CompiledGrammar) -> None:
        """Store a grammar."""
        with self._lock:
            self._grammars[grammar_id] = grammar

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop grammars; unknown ids are ignored."""
        with self._lock:
            for grammar_id in grammar_ids:
                self._grammars.pop(grammar_id, None)

    def clear(self) -> None:
        """Drop all grammars."""
        with self._lock:
            self._grammars.clear()
