"""What a planted bug is: a patch of source text, with a name and a sentence. Plants nothing."""

from dataclasses import dataclass

CORE = "pagewire_scheduler.core."
FRONTEND = "pagewire_frontend."
CELL = "simulation.history"
GROUP = "simulation.group.histories"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug.

    Attributes:
        patches: (module, text, text instead); the text is there exactly once.
        caught_by: The invariants that it is there to show at work; what else fails does not count.
        histories: The module whose histories find it.
    """

    name: str
    sentence: str
    patches: tuple[tuple[str, str, str], ...]
    caught_by: frozenset[str]
    histories: str = CELL


def mutant(
    name: str,
    sentence: str,
    module: str,
    before: str,
    after: str,
    *caught_by: str,
    histories: str = CELL,
) -> Mutant:
    return Mutant(name, sentence, ((module, before, after),), frozenset(caught_by), histories)
