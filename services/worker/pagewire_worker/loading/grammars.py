"""The compiler and the table of a worker's grammars, over one set of compiled grammars."""

from dataclasses import dataclass
from pathlib import Path

from pagewire_worker.grammars.compiled import CompiledGrammars
from pagewire_worker.grammars.compiler import GrammarCompiler
from pagewire_worker.grammars.table import GrammarTable


@dataclass(frozen=True, slots=True)
class GrammarParts:
    """The two ends of one set of compiled grammars: `compiler` for the link, `table` for the
    model runner."""

    compiler: GrammarCompiler
    table: GrammarTable


def make_grammars(folder: Path, vocab_size: int) -> GrammarParts:
    """Return the grammars of a model of `vocab_size` logits; reads nothing yet."""
    compiled = CompiledGrammars()
    return GrammarParts(
        GrammarCompiler(folder, vocab_size, compiled), GrammarTable(vocab_size, compiled)
    )
