"""Random list items: known words, invented words, codes, numbers and names; it never builds a
sentence.
"""

import enum
import random
from typing import Final

from builtin_recipe.words import CITIES, LETTERS, NAMES, NOUNS


class ItemKind(enum.Enum):
    """What the items of one list are made of."""

    WORD = "words"
    INVENTED = "invented words"
    CODE = "codes"
    NUMBER = "numbers"
    NAME = "names"


_KIND_WEIGHTS: Final = {
    ItemKind.WORD: 6.0,
    ItemKind.INVENTED: 1.2,
    ItemKind.CODE: 0.9,
    ItemKind.NUMBER: 1.0,
    ItemKind.NAME: 1.5,
}
_PROPER_NAMES: Final = NAMES + CITIES
LIST_SEPARATORS: Final = {", ": 12.0, " ": 4.0, "\n": 3.0, "; ": 1.0, " | ": 0.7, " - ": 0.5}


def draw_kind(rng: random.Random) -> ItemKind:
    """Draw the kind of a list, mostly known words."""
    return rng.choices(list(_KIND_WEIGHTS), list(_KIND_WEIGHTS.values()))[0]


def draw_code(rng: random.Random) -> str:
    """Return 3 to 6 lower-case letters and digits."""
    length = rng.choice((3, 4, 5, 6))
    pools = [LETTERS if rng.random() < 0.5 else "0123456789" for _ in range(length)]
    return "".join(rng.choice(pool) for pool in pools)


def draw_invented_word(rng: random.Random) -> str:
    """Return a pronounceable word that is in no list, such as `vozen`."""
    syllables = [
        rng.choice("bcdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.choice((2, 3)))
    ]
    return "".join(syllables) + rng.choice(("", "n", "r", "s", "x"))


def draw_item(rng: random.Random, kind: ItemKind) -> str:
    """Draw one item of `kind`."""
    match kind:
        case ItemKind.WORD:
            return rng.choice(NOUNS)
        case ItemKind.INVENTED:
            return draw_invented_word(rng)
        case ItemKind.CODE:
            return draw_code(rng)
        case ItemKind.NUMBER:
            return str(rng.randrange(10, 1000))
        case ItemKind.NAME:
            return rng.choice(_PROPER_NAMES)


def draw_distinct(rng: random.Random, count: int, kind: ItemKind) -> list[str]:
    """Draw `count` different items; a pool that runs dry is topped up with invented words."""
    found: dict[str, None] = {}
    num_tries = 0
    while len(found) < count:
        num_tries += 1
        exhausted = num_tries > 5 * count + 20
        found[draw_item(rng, ItemKind.INVENTED if exhausted else kind)] = None
    return list(found)


def draw_length(rng: random.Random, low: int, high: int, size: float) -> int:
    """Draw a length between `low` and the point that `size` (0 to 1) marks on the way to `high`."""
    return rng.randint(low, max(low, int(low + (high - low) * size + 0.5)))


def draw_separator(rng: random.Random) -> str:
    """Draw how the items of a list are set apart, mostly by commas."""
    return rng.choices(list(LIST_SEPARATORS), list(LIST_SEPARATORS.values()))[0]
