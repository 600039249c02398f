"""How a request is worded: patterns with alternatives, those of training and those held out; it
knows no skill.
"""

import random
import re
from dataclasses import dataclass
from typing import Final

from builtin_recipe.manners import as_typed
from builtin_recipe.words import COMMON_WORDS, DECIDING_WORDS, NOUNS, SMALL_WORDS, capitalized

_ALTERNATIVES: Final = re.compile(r"\[([^\[\]]*)\]")
_WORD: Final = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_FIELD_OR_WORD: Final = re.compile(rf"\{{\w+\}}|{_WORD.pattern}")
# A text without a mark before it would run into the words of the request.
_UNMARKED_TEXT: Final = re.compile(r"[\w,] \{(?:items|text|shown|told)\}")
_SPACE_BEFORE_MARK: Final = re.compile(r" +([.,:?!])")
_SPACES: Final = re.compile(r" {2,}")
# What takes the place of words that do not count.
_ANY_WORDS: Final = tuple(
    sorted({*COMMON_WORDS, *SMALL_WORDS} - {*DECIDING_WORDS} - {noun.lower() for noun in NOUNS})
)
# How much of a loosened request is changed: a word or two, or nearly all.
_RATES: Final = (0.15, 0.3, 0.6, 0.95)


@dataclass(frozen=True, slots=True)
class Wordings:
    """Patterns of one request; training never sees those that are held out.

    In a pattern `[a|b|]` stands for one of its alternatives, which may hold brackets themselves;
    fields in braces are filled by the skill. `keywords`, in lower case with spaces between, decide
    what is asked: training may replace all other words, so that the model goes by the keywords and
    by the shape of what is given. None: every word counts.
    """

    trained: tuple[str, ...]
    held_out: tuple[str, ...]
    keywords: str | None = None


@dataclass(frozen=True, slots=True)
class Draw:
    """What a skill draws an example from.

    `size` between 0 and 1 steers the length of lists and tables; with `is_held_out` the wordings
    are those that training never sees. `looseness` is the share of requests whose words are
    changed at random, as far as their keywords allow.
    """

    rng: random.Random
    size: float = 0.5
    is_held_out: bool = False
    looseness: float = 0.0

    def pattern(self, wordings: Wordings) -> str:
        """Draw one pattern and settle its alternatives; the fields stay in."""
        pool = wordings.held_out if self.is_held_out else wordings.trained
        pattern = settled(self.rng, self.rng.choice(pool))
        if wordings.keywords is not None and self.rng.random() < self.looseness:
            return loosened(self.rng, pattern, wordings.keywords)
        return pattern

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


def loosened(rng: random.Random, pattern: str, keywords: str) -> str:
    """Return a settled `pattern` with words dropped, added and replaced by any others.

    Fields, marks and `keywords` stay. A pattern is returned as it is when nothing marks off its
    text, or when it says in other words what the keywords say.
    """
    kept = frozenset(keywords.split())
    is_said = not kept or any(word.lower() in kept for word in _WORD.findall(pattern))
    if _UNMARKED_TEXT.search(pattern) or not is_said:
        return pattern
    rate = rng.choice(_RATES)

    def changed(found: re.Match[str]) -> str:
        word = found.group()
        if word.startswith("{") or word.lower() in kept or rng.random() > rate:
            return word
        form = rng.random()
        if form < 0.2:
            return ""
        return rng.choice(_ANY_WORDS) if form < 0.8 else f"{word} {rng.choice(_ANY_WORDS)}"

    text = _SPACES.sub(" ", _FIELD_OR_WORD.sub(changed, pattern)).strip(" ")
    return _SPACE_BEFORE_MARK.sub(r"\1", text).replace("\n ", "\n")
