"""Makes the compiler and the table of a worker's grammars, which share the compiled grammars."""

from dataclasses import dataclass
from pathlib import Path

from pagewire_worker.grammars.compiled import CompiledGrammars
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.grammars.table import GrammarTable


@dataclass(frozen=True, slots=True)
class GrammarParts:
    """The two users of one set of compiled grammars.

    The link uses `compiler`, the model runner uses `table`.
    """

    compiler: GrammarCompiler
    table: GrammarTable


def make_grammars(folder: Path, vocab_size: int) -> GrammarParts:
    """Return the grammars of a model with `vocab_size` logits; no file is read yet."""
    compiled = CompiledGrammars()
    return GrammarParts(
        GrammarCompiler(folder, vocab_size, compiled), GrammarTable(vocab_size, compiled)
    )
