"""Exchanges about lists and sentences: copy, reverse, pick and count; what is shown decides every
answer.
"""

from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import (
    ItemKind,
    draw_distinct,
    draw_kind,
    draw_length,
    draw_separator,
)
from builtin_recipe.skills.sentences import draw_sentence
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.wordings.copies import COPY
from builtin_recipe.wordings.lists import COUNT, PICK, REVERSE

_PLACES_OF_PICK: Final = {"first": 0, "second": 1, "last": -1}
# Items of several tokens make long lists, which the model masters less: they stay shorter.
_MAX_COPY: Final = {ItemKind.WORD: 40, ItemKind.NAME: 30}
_MAX_COPY_OTHER: Final = 15
_MAX_REVERSE: Final = 6
_MAX_COUNT: Final = 6
_SENTENCE_SHARE: Final = 0.35
_REPEATS_SHARE: Final = 0.15


def _about(draw: Draw, wordings: Wordings, items: str, **fields: str) -> str:
    return draw.request(wordings).format(items=items, **fields)


def copy_exchanges(
    draw: Draw,
    kind: ItemKind | None = None,
    count: int | None = None,
    has_repeats: bool | None = None,
) -> list[Exchange]:
    """Return a request to repeat a list of up to 40 items; with repeats some of them come again."""
    kind = kind or draw_kind(draw.rng)
    if count is None:
        # Short lists alone teach no copying: the shortest upper end is 15 items.
        limit = _MAX_COPY.get(kind, _MAX_COPY_OTHER)
        count = draw_length(draw.rng, 1, limit, max(draw.size, 0.35))
    if has_repeats is None:
        has_repeats = draw.rng.random() < _REPEATS_SHARE
    if has_repeats:
        # What follows an item is no sure sign of what follows it the next time.
        pool = draw_distinct(draw.rng, max(2, count * 2 // 3), kind)
        items = draw.rng.choices(pool, k=count)
    else:
        items = draw_distinct(draw.rng, count, kind)
    text = draw_separator(draw.rng).join(items)
    return [Exchange(_about(draw, COPY, text), text)]


def copy_sentence_exchanges(draw: Draw) -> list[Exchange]:
    """Return a request to repeat one or two sentences."""
    sentences = [draw_sentence(draw.rng) for _ in range(1 if draw.rng.random() < 0.8 else 2)]
    text = " ".join(sentences)
    return [Exchange(_about(draw, COPY, text), text)]


def any_copy_exchanges(draw: Draw) -> list[Exchange]:
    """Return a request to repeat a list or, in one of three cases, a sentence."""
    if draw.rng.random() < _SENTENCE_SHARE:
        return copy_sentence_exchanges(draw)
    return copy_exchanges(draw)


def reverse_exchanges(
    draw: Draw, kind: ItemKind | None = None, count: int | None = None
) -> list[Exchange]:
    """Return a request to reverse a list of up to 6 items."""
    kind = kind or draw.rng.choice((ItemKind.WORD, ItemKind.WORD, ItemKind.NAME))
    count = count or draw_length(draw.rng, 2, _MAX_REVERSE, max(draw.size, 0.3))
    items = draw_distinct(draw.rng, count, kind)
    separator = draw.rng.choices((", ", " "), (6, 4))[0]
    question = _about(draw, REVERSE, separator.join(items))
    return [Exchange(question, separator.join(reversed(items)))]


def pick_exchanges(draw: Draw, kind: ItemKind | None = None) -> list[Exchange]:
    """Return a question for the first, second or last item of a list."""
    count = draw_length(draw.rng, 3, 12, draw.size)
    items = draw_distinct(draw.rng, count, kind or draw_kind(draw.rng))
    place = draw.rng.choice(list(_PLACES_OF_PICK))
    question = _about(draw, PICK, draw_separator(draw.rng).join(items), place=place)
    return [Exchange(question, items[_PLACES_OF_PICK[place]])]


def count_exchanges(draw: Draw) -> list[Exchange]:
    """Return a question for the length of a list of at most 6 items."""
    kind = draw.rng.choice((ItemKind.WORD, ItemKind.WORD, ItemKind.NAME))
    count = draw_length(draw.rng, 1, _MAX_COUNT, max(draw.size, 0.6))
    text = draw_separator(draw.rng).join(draw_distinct(draw.rng, count, kind))
    return [Exchange(_about(draw, COUNT, text), str(count))]
