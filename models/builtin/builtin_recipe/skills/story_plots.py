"""Plots: fixed lists of choices that stories are told from; it owns no words and no sentences.

A hero leads to one of a few plots, and a plot to its figures, places, things and patterns. Drawn
freely, the likeliest sentence is the same for every hero, and greedy decoding tells one story.
"""

import random
from dataclasses import dataclass
from typing import Final, TypeVar

from builtin_recipe.words import ANIMALS, KEEPSAKES, NAMES, NOUNS, PEOPLE, PLACES, TRAITS

# So few that a small model learns by heart which word leads to which plot.
NUM_PLOTS: Final = 24
# Known words take turns, so that as few as can be share a plot; the first ones do not.
_KNOWN_NUMBERS: Final = {
    word.lower(): number % NUM_PLOTS
    for words, start in ((NOUNS, 0), (NAMES, NUM_PLOTS // 2))
    for number, word in enumerate(words, start)
}

_Choice = TypeVar("_Choice")


@dataclass(frozen=True, slots=True)
class Plot:
    """What a story is about where the request leaves it open; the first of each is used first.

    `creatures` are nouns, each with its trait.
    """

    names: tuple[str, ...]
    creatures: tuple[tuple[str, str], ...]
    has_person_first: bool
    things: tuple[str, ...]
    places: tuple[str, ...]
    trait: str


def plot_number(main_word: str) -> int:
    """Return the number of the plot of every planned story about `main_word`."""
    word = main_word.lower()
    known = _KNOWN_NUMBERS.get(word)
    return random.Random(f"{word} plot").randrange(NUM_PLOTS) if known is None else known


def ordered(options: tuple[_Choice, ...], number: int, slot: str) -> list[_Choice]:
    """Return `options` in the order in which plot `number` uses them.

    Plots take turns in what comes first, so that few of them share it.
    """
    turns = random.Random(f"{slot} turns").sample(options, len(options))
    first = turns[number % len(turns)]
    order = random.Random(f"{slot} {number}").sample(options, len(options))
    return [first, *(one for one in order if one != first)]


def _make_plot(number: int) -> Plot:
    traits = ordered(TRAITS, number, "friend trait")
    nouns = ordered(ANIMALS + PEOPLE, number, "friend")
    return Plot(
        names=tuple(ordered(NAMES, number, "name")[:5]),
        creatures=tuple(zip(nouns[:5], traits[:5], strict=True)),
        has_person_first=random.Random(f"person {number}").random() < 0.55,
        things=tuple(ordered(KEEPSAKES, number, "thing")[:6]),
        places=tuple(ordered(PLACES, number, "place")[:6]),
        trait=ordered(TRAITS, number, "hero trait")[0],
    )


PLOTS: Final = tuple(_make_plot(number) for number in range(NUM_PLOTS))
