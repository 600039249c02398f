"""Exchanges about lists: copy, reverse, pick and count; the list alone decides every answer."""

import random
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import (
    ItemKind,
    draw_distinct,
    draw_item,
    draw_kind,
    draw_length,
    draw_separator,
)

_COPY: Final = (
    "Copy this list: {}",
    "Copy: {}",
    "Copy this: {}",
    "Copy these words: {}",
    "Repeat these words: {}",
    "Repeat exactly: {}",
    "Repeat: {}",
    "Repeat after me: {}",
    "Please repeat: {}",
    "Please copy the following words:\n{}",
    "Say this back to me: {}",
    "Write the same list again: {}",
    "{}\nRepeat the list above.",
    "{}\nCopy the text above.",
    "Echo: {}",
)
_REVERSE: Final = (
    "Reverse this list: {}",
    "Reverse: {}",
    "Write these words in reverse order: {}",
    "Reverse the order of: {}",
    "Say this list backwards: {}",
    "{}\nWrite the list above backwards.",
)
_PICK: Final = (
    "What is the {} item of this list? {}",
    "Give me the {} word: {}",
    "Which word is {}: {}",
    "Name the {} item: {}",
)
_COUNT: Final = (
    "How many words are in this list? {}",
    "Count the items: {}",
    "How many items: {}",
    "{}\nHow many words are above?",
)
_PLACES_OF_PICK: Final = {"first": 0, "second": 1, "last": -1}
# Items of several tokens make long lists, which the model masters less: they stay shorter.
_MAX_COPY: Final = {ItemKind.WORD: 40, ItemKind.NAME: 30}
_MAX_COPY_OTHER: Final = 15
_MAX_REVERSE: Final = 6
_MAX_COUNT: Final = 6


def copy_exchanges(rng: random.Random, size: float, kind: ItemKind | None = None) -> list[Exchange]:
    """Return a request to repeat a list of up to 40 items."""
    kind = kind or draw_kind(rng)
    # Short lists alone teach no copying: the shortest upper end is 15 items.
    count = draw_length(rng, 2, _MAX_COPY.get(kind, _MAX_COPY_OTHER), max(size, 0.35))
    if rng.random() < 0.3:
        items = [draw_item(rng, kind) for _ in range(count)]
    else:
        items = draw_distinct(rng, count, kind)
    text = draw_separator(rng).join(items)
    return [Exchange(rng.choice(_COPY).format(text), text)]


def reverse_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return a request to reverse a list of up to 6 items."""
    kind = rng.choice((ItemKind.WORD, ItemKind.WORD, ItemKind.NAME))
    items = draw_distinct(rng, draw_length(rng, 2, _MAX_REVERSE, max(size, 0.3)), kind)
    separator = rng.choices((", ", " "), (6, 4))[0]
    question = rng.choice(_REVERSE).format(separator.join(items))
    return [Exchange(question, separator.join(reversed(items)))]


def pick_exchanges(rng: random.Random, size: float, kind: ItemKind | None = None) -> list[Exchange]:
    """Return a question for the first, second or last item of a list."""
    count = draw_length(rng, 3, 10, size)
    items = draw_distinct(rng, count, kind or draw_kind(rng))
    place = rng.choice(list(_PLACES_OF_PICK))
    question = rng.choice(_PICK).format(place, draw_separator(rng).join(items))
    return [Exchange(question, items[_PLACES_OF_PICK[place]])]


def count_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return a question for the length of a list of at most 6 items."""
    kind = rng.choice((ItemKind.WORD, ItemKind.WORD, ItemKind.NAME))
    count = draw_length(rng, 1, _MAX_COUNT, max(size, 0.6))
    text = draw_separator(rng).join(draw_distinct(rng, count, kind))
    return [Exchange(rng.choice(_COUNT).format(text), str(count))]
