"""Exchanges about tables of keys and values, as lines or as prose: look up one value, or copy whole
lines; keys within a table differ.
"""

import random
from dataclasses import dataclass
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import ItemKind, draw_distinct, draw_item, draw_length
from builtin_recipe.wording import Draw
from builtin_recipe.wordings.table_parts import LINES, VALUES
from builtin_recipe.wordings.tables import ONE_VALUE, QUESTION_FIRST, TABLE_FIRST
from builtin_recipe.words import capitalized

_QUESTION_FIRST_SHARE: Final = 0.2
_QUESTION_FIRST_SHARE_SMALL: Final = 0.6
# Lines and several values hold more labelled tokens than one value, all found by the same means.
_LINES_SHARE_FIRST: Final = 0.35
_VALUES_SHARE: Final = 0.12
_KEY_KINDS: Final = {
    ItemKind.WORD: 5.0,
    ItemKind.INVENTED: 1.5,
    ItemKind.CODE: 2.0,
    ItemKind.NAME: 1.0,
}
_VALUE_KINDS: Final = {
    ItemKind.WORD: 4.0,
    ItemKind.INVENTED: 1.0,
    ItemKind.CODE: 1.0,
    ItemKind.NUMBER: 3.0,
    ItemKind.NAME: 1.0,
}
# What stands between key and value, and where the line starts and ends.
_LAYOUTS: Final = {
    "{key}: {value}": 24.0,
    "{key} = {value}": 3.0,
    "{key}={value}": 3.0,
    "{key} -> {value}": 3.0,
    "{key},{value}": 2.0,
    "{key}, {value}": 1.5,
    "{key} | {value}": 1.0,
    "| {key} | {value} |": 0.7,
    "{key} - {value}": 1.0,
    "- {key}: {value}": 1.5,
    "* {key}: {value}": 0.7,
    "{key}:{value}": 1.0,
    "{key} => {value}": 0.7,
    "{key}; {value}": 0.7,
    "{key} is {value}": 1.0,
    "{key} is {value}.": 1.0,
    "The value of {key} is {value}.": 1.5,
    "The {key} has {value}.": 0.7,
    "{key} has the value {value}.": 0.7,
    "{key} goes with {value}.": 0.7,
    '"{key}": "{value}",': 1.0,
}
# Prose of a few sentences may stand on one line.
_MAX_PROSE: Final = 12
MAX_LINES: Final = 150
_MAX_SMALL: Final = 12
_SMALL_SHARE: Final = 0.5
# The longest tables are the hardest: half of those that may be long are.
_LONG_SIZE: Final = 0.8
_LONG_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Table:
    """The keys and values of a table and how its lines are laid out."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    layout: str
    is_prose: bool = False

    def line(self, index: int) -> str:
        """Return one line of the table."""
        return self.layout.format(key=self.keys[index], value=self.values[index])

    def text(self) -> str:
        """Return all lines of the table."""
        lines = [self.line(index) for index in range(len(self.keys))]
        return " ".join(lines) if self.is_prose else "\n".join(lines)


def draw_table(rng: random.Random, num_lines: int, key_kind: ItemKind | None = None) -> Table:
    """Draw a table of `num_lines` lines with different keys."""
    key_kind = key_kind or rng.choices(list(_KEY_KINDS), list(_KEY_KINDS.values()))[0]
    value_kind = rng.choices(list(_VALUE_KINDS), list(_VALUE_KINDS.values()))[0]
    keys = draw_distinct(rng, num_lines, key_kind)
    values = [draw_item(rng, value_kind) for _ in keys]
    layout = rng.choices(list(_LAYOUTS), list(_LAYOUTS.values()))[0]
    is_prose = layout.endswith(".") and num_lines <= _MAX_PROSE and rng.random() < 0.5
    return Table(tuple(keys), tuple(values), layout, is_prose)


def _ask_one(draw: Draw, table: Table) -> Exchange:
    index = draw.rng.randrange(len(table.keys))
    question = draw.request(ONE_VALUE).format(key=table.keys[index])
    return Exchange(question, table.values[index])


def _ask_lines(draw: Draw, table: Table) -> Exchange:
    num_lines = len(table.keys)
    chosen = draw.rng.sample(range(num_lines), min(num_lines, draw.rng.randint(1, 6)))
    keys = ", ".join(table.keys[index] for index in chosen)
    answer = "\n".join(table.line(index) for index in chosen)
    return Exchange(draw.request(LINES).format(keys=keys), answer)


def _ask_values(draw: Draw, table: Table) -> Exchange:
    num_lines = len(table.keys)
    chosen = draw.rng.sample(range(num_lines), min(num_lines, draw.rng.randint(2, 4)))
    *first, last = [table.keys[index] for index in chosen]
    keys = ", ".join(first) + draw.rng.choice((", ", " and ")) + last if first else last
    answer = ", ".join(table.values[index] for index in chosen)
    return Exchange(draw.request(VALUES).format(keys=keys), answer)


def table_exchanges(
    draw: Draw,
    table: Table,
    num_questions: int,
    shares: tuple[float, float],
    is_question_first: bool = False,
) -> list[Exchange]:
    """Return `num_questions` exchanges about `table`; the first question carries the table, before
    or behind it.

    `shares` are those of questions for lines and for several values; the others ask for one value.
    """
    frames = QUESTION_FIRST if is_question_first else TABLE_FIRST
    asks = (_ask_lines, _ask_values, _ask_one)
    exchanges = []
    for number in range(num_questions):
        ask = draw.rng.choices(asks, (*shares, 1.0 - sum(shares)))[0]
        exchange = ask(draw, table)
        if number == 0:
            frame = capitalized(draw.pattern(frames))
            asked = exchange.question
            if "{question} " in frame and asked[-1].isalnum():
                asked += "."
            question = frame.format(table=table.text(), question=asked)
            exchange = Exchange(question, exchange.answer)
        exchanges.append(exchange)
    return exchanges


def lookup_exchanges(draw: Draw) -> list[Exchange]:
    """Return questions about one table, or about a small table each.

    One question a table would train two tokens for hundreds, so most tables have several. But only
    the first can stand before its table, and that has to be learnt, too: the small tables.
    """
    rng = draw.rng
    num_lines = draw_length(rng, 2, MAX_LINES, draw.size**2)
    if draw.size > _LONG_SIZE and rng.random() < _LONG_SHARE:
        num_lines = rng.randint(MAX_LINES // 2, MAX_LINES)
    if num_lines <= _MAX_SMALL and rng.random() < _SMALL_SHARE:
        tables = [draw_table(rng, num_lines) for _ in range(rng.randint(1, 4))]
        return [one for table in tables for one in _asked_once(draw, table)]
    table = draw_table(rng, num_lines)
    num_questions = rng.randint(2, 6) if num_lines <= _MAX_SMALL else rng.randint(8, 14)
    lines_share = 0.6 if rng.random() < 0.4 else 0.0
    is_first = rng.random() < _QUESTION_FIRST_SHARE
    return table_exchanges(draw, table, num_questions, (lines_share, _VALUES_SHARE), is_first)


def _asked_once(draw: Draw, table: Table) -> list[Exchange]:
    is_first = draw.rng.random() < _QUESTION_FIRST_SHARE_SMALL
    lines_share = _LINES_SHARE_FIRST if is_first else 0.1
    return table_exchanges(draw, table, 1, (lines_share, _VALUES_SHARE), is_first)
