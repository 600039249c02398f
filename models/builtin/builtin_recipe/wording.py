"""How a request is worded: patterns with alternatives, those of training and those held out; it
knows no skill.
"""

import random
import re
from dataclasses import dataclass
from typing import Final

from builtin_recipe.manners import as_typed
from builtin_recipe.words import capitalized

_ALTERNATIVES: Final = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, slots=True)
class Wordings:
    """Patterns of one request; training never sees those that are held out.

    In a pattern `[a|b|]` stands for one of its alternatives, which may hold brackets themselves;
    fields in braces are filled by the skill.
    """

    trained: tuple[str, ...]
    held_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Draw:
    """What a skill draws an example from.

    `size` between 0 and 1 steers the length of lists and tables; with `is_held_out` the wordings
    are those that training never sees.
    """

    rng: random.Random
    size: float = 0.5
    is_held_out: bool = False

    def pattern(self, wordings: Wordings) -> str:
        """Draw one pattern and settle its alternatives; the fields stay in."""
        pool = wordings.held_out if self.is_held_out else wordings.trained
        return settled(self.rng, self.rng.choice(pool))

    def request(self, wordings: Wordings) -> str:
        """Draw one pattern as a user would type it: its case, politeness and full stop vary."""
        return as_typed(self.rng, capitalized(self.pattern(wordings)))


def settled(rng: random.Random, pattern: str) -> str:
    """Return `pattern` with one alternative drawn for every pair of brackets, innermost first."""
    while True:
        found = _ALTERNATIVES.search(pattern)
        if found is None:
            return pattern
        chosen = rng.choice(found.group(1).split("|"))
        pattern = pattern[: found.start()] + chosen + pattern[found.end() :]
