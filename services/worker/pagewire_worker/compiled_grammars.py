"""The compiled grammars of a worker by id. The event loop fills them, the model thread reads."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from llguidance import LLMatcher, LLTokenizer

from pagewire_shared.grammar_source import compile_grammar
from pagewire_shared.structured_outputs import StructuredOutputsParams


@dataclass(slots=True)
class CompiledGrammar:
    """A grammar from which matchers are copied, one per sequence.

    Copies share the states of the lexer, which is why a copy costs a microsecond, and why one that
    runs out of states takes the others with it. `prototype` is then replaced.
    """

    tokenizer: LLTokenizer
    params: StructuredOutputsParams
    prototype: LLMatcher = field(init=False)

    def __post_init__(self) -> None:
        """Compile. Raises InvalidRequestError."""
        self.prototype = compile_grammar(self.tokenizer, self.params)


class CompiledGrammars:
    """Grammars by id, each kept until it is released.

    An id is never used again on an attach, so a release that comes late means what it names.
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
        """Keep a grammar."""
        with self._lock:
            self._grammars[grammar_id] = grammar

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop grammars; unknown ids are no mistake."""
        with self._lock:
            for grammar_id in grammar_ids:
                self._grammars.pop(grammar_id, None)

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self._grammars.clear()
