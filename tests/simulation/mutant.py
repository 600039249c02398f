"""What a planted bug is: a patch of source text, with a name and a sentence. Plants nothing."""

from dataclasses import dataclass

CORE = "pagewire_scheduler.core."
FRONTEND = "pagewire_frontend."


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug; `patches` are (module, text, text instead)."""

    name: str
    sentence: str
    patches: tuple[tuple[str, str, str], ...]


def mutant(name: str, sentence: str, module: str, before: str, after: str) -> Mutant:
    return Mutant(name, sentence, ((module, before, after),))
