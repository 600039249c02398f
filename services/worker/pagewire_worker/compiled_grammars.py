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


@dataclass(slots=True)
class _Held:
    grammar: CompiledGrammar
    num_claims: int


class CompiledGrammars:
    """Grammars by id; each is kept until it was released as often as it was asked for.

    A release travels with a plan and a request to compile does not: a grammar asked for again
    may be here before the plan that releases it the first time has run.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[bytes, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def find(self, grammar_id: bytes) -> CompiledGrammar | None:
        """Return a grammar, or None."""
        held = self._held.get(grammar_id)
        return held.grammar if held is not None else None

    def claim(self, grammar_id: bytes) -> bool:
        """Count one more request for a grammar; return whether it is here."""
        with self._lock:
            held = self._held.get(grammar_id)
            if held is not None:
                held.num_claims += 1
        return held is not None

    def add(self, grammar_id: bytes, grammar: CompiledGrammar) -> None:
        """Keep a grammar that was asked for once; one that is here already stays."""
        with self._lock:
            held = self._held.setdefault(grammar_id, _Held(grammar, num_claims=0))
            held.num_claims += 1

    def release(self, grammar_ids: Sequence[bytes]) -> None:
        """Drop grammars that nobody asked for again; unknown ids are no mistake."""
        with self._lock:
            for grammar_id in grammar_ids:
                held = self._held.get(grammar_id)
                if held is None:
                    continue
                held.num_claims -= 1
                if held.num_claims == 0:
                    del self._held[grammar_id]

    def clear(self) -> None:
        """Drop all."""
        with self._lock:
            self._held.clear()
