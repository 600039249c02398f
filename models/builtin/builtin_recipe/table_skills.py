"""Exchanges about tables of `key: value` lines: look up one value, or copy whole lines; keys within
a table differ.
"""

import random
from dataclasses import dataclass
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import ItemKind, draw_distinct, draw_item, draw_length

_FRAMES: Final = (
    "{table}\n\n{question}",
    "{question}\n\n{table}",
    "Here is a list:\n{table}\n\n{question}",
    "Use this table:\n{table}\n{question}",
    "Read the list and answer.\n{table}\nQuestion: {question}",
    "Table:\n{table}\n\n{question}",
)
_ONE_VALUE: Final = (
    "What is the value of {}?",
    "Look up {}.",
    "What is {}?",
    "Which value belongs to {}?",
    "Give me the value for {}.",
    "What is the value for {}?",
    "{}?",
    "Find {}.",
)
_LINES: Final = (
    "Show the lines for: {}",
    "Copy the lines with these keys: {}",
    "Print the entries for: {}",
)
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
_SEPARATORS: Final = {": ": 18.0, " = ": 1.0, " -> ": 1.0}
MAX_LINES: Final = 150


@dataclass(frozen=True, slots=True)
class Table:
    """The keys and values of a table and what stands between them."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    separator: str

    def line(self, index: int) -> str:
        """Return one line of the table."""
        return f"{self.keys[index]}{self.separator}{self.values[index]}"

    def text(self) -> str:
        """Return all lines of the table."""
        return "\n".join(self.line(index) for index in range(len(self.keys)))


def draw_table(rng: random.Random, num_lines: int, key_kind: ItemKind | None = None) -> Table:
    """Draw a table of `num_lines` lines with different keys."""
    key_kind = key_kind or rng.choices(list(_KEY_KINDS), list(_KEY_KINDS.values()))[0]
    value_kind = rng.choices(list(_VALUE_KINDS), list(_VALUE_KINDS.values()))[0]
    keys = draw_distinct(rng, num_lines, key_kind)
    values = [draw_item(rng, value_kind) for _ in keys]
    separator = rng.choices(list(_SEPARATORS), list(_SEPARATORS.values()))[0]
    return Table(tuple(keys), tuple(values), separator)


def _ask_one(rng: random.Random, table: Table) -> Exchange:
    index = rng.randrange(len(table.keys))
    return Exchange(rng.choice(_ONE_VALUE).format(table.keys[index]), table.values[index])


def _ask_lines(rng: random.Random, table: Table) -> Exchange:
    num_lines = len(table.keys)
    chosen = rng.sample(range(num_lines), min(num_lines, rng.randint(1, 6)))
    keys = ", ".join(table.keys[index] for index in chosen)
    return Exchange(
        rng.choice(_LINES).format(keys), "\n".join(table.line(index) for index in chosen)
    )


def table_exchanges(
    rng: random.Random, table: Table, num_questions: int, lines_share: float
) -> list[Exchange]:
    """Return `num_questions` exchanges about `table`; the first question carries the table."""
    exchanges = []
    for number in range(num_questions):
        ask = _ask_lines if rng.random() < lines_share else _ask_one
        exchange = ask(rng, table)
        if number == 0:
            frame = rng.choice(_FRAMES)
            question = frame.format(table=table.text(), question=exchange.question)
            exchange = Exchange(question, exchange.answer)
        exchanges.append(exchange)
    return exchanges


def lookup_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return several questions about one table: a single one would train two tokens per table."""
    num_lines = draw_length(rng, 2, MAX_LINES, size**2)
    table = draw_table(rng, num_lines)
    num_questions = rng.randint(2, 6) if num_lines < 12 else rng.randint(6, 12)
    return table_exchanges(rng, table, num_questions, 0.7 if rng.random() < 0.5 else 0.0)
