"""Exchanges about tables of keys and values, as lines or as prose: look up one value, or copy whole
lines; keys within a table differ.
"""

import random
from dataclasses import dataclass
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import ItemKind, draw_distinct, draw_item, draw_length
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import capitalized

_TABLE_FIRST: Final = Wordings(
    trained=(
        "{table}\n\n{question}",
        "{table}\n{question}",
        "[here is|this is|look at|see|read] [a list|a table|my list|the list|the table|some data]"
        "[:|.]\n{table}\n[|\n]{question}",
        "[use|read|take] [this|the following] [table|list|data][:|.|]\n{table}\n[|\n]{question}",
        "[read|look at] the list and answer.\n{table}\n[question: |q: |]{question}",
        "[table|list|data|context|values|notes]:\n{table}\n\n[|question: |q: ]{question}",
        "[table|list|data|context|values]:\n{table}\n{question}",
        "[given|from] [this|the] [table|list]:\n{table}\n[|\n]{question}",
        "{table}\n\nquestion: {question}",
        "[these|here] are [some|the|my] [values|pairs|lines]:\n{table}\n[|\n]{question}",
        "[my|the|our] [table|list|notes|data][:|.]\n{table}\n[|\n]{question}",
        "[I have|we have|there is] [a list|a table|this list][|.|:]\n{table}\n[|\n]{question}",
        "[remember|learn|keep] [these|the following] [values|pairs|lines][:|.]\n{table}"
        "\n[|\n]{question}",
        "[answer|answer the question] from [this|the] [list|table].\n{table}\n[|\n]{question}",
        "[we know|we have|I know] [this|the following|these things][:|.]\n{table}\n[|\n]{question}",
        "[a list|a table|some lines|a few values] [to read|for you|of mine][:|.]"
        "\n{table}\n[|\n]{question}",
        "{table}\n\n[that is|this was] [the list|my table|all][.|!] {question}",
        "{table}\n\n[now|so|please answer|my question]: {question}",
        "[file|text|document|input|facts]:\n{table}\n\n[|question: ]{question}",
    ),
    held_out=(
        "I wrote this down:\n{table}\n\n{question}",
        "please study the following list.\n{table}\n\n{question}",
        "I will show you a table.\n{table}\nHere is my question: {question}",
        "a table follows.\n{table}\nNow answer: {question}",
        "with the help of this list\n{table}\nanswer the following. {question}",
        "the data is:\n{table}\n\n{question}",
        "take the values from here.\n{table}\n\n{question}",
        "the lines are these:\n{table}\n\n{question}",
    ),
)
# Harder: the key has to be kept in mind until its line comes.
_QUESTION_FIRST: Final = Wordings(
    trained=(
        "{question}\n\n{table}",
        "{question}\n{table}",
        "{question} [use|look in|see] [this|the] [list|table][:|.]\n{table}",
        "{question} [here is|this is] the [table|list|data][:|.]\n{table}",
        "question: {question}\n[table|list|data]:\n{table}",
    ),
    held_out=(
        "{question} Use the data below.\n\n{table}",
        "answer from the lines that follow. {question}\n\n{table}",
        "{question} You find it in these lines:\n{table}",
        "please answer this with my notes: {question}\n\n{table}",
    ),
)
_QUESTION_FIRST_SHARE: Final = 0.2
_ONE_VALUE: Final = Wordings(
    trained=(
        "what is the [value|entry|number] [of|for] {key}?",
        "what is {key}?",
        "what value does {key} have?",
        "what [value|entry] [belongs to|goes with|stands for|is given for] {key}?",
        "which [value|entry|item|word] [belongs to|goes with|stands behind|is next to] {key}?",
        "[give|tell|show] me [the value for|the value of|the entry for|the value at] {key}.",
        "[find|look up|get|read|show|return] {key}.",
        "[find|look up|get|read|show|return] [the value of|the value for|the entry for] {key}.",
        "[can|could] you [find|look up|tell me|give me] [the value of|the value for|what is at] "
        "{key}?",
        "[tell me|say|write] what {key} is.",
        "[I need|I want|I would like] the [value|entry] [of|for] {key}.",
        "[what does|what did] the [table|list] say [about|for] {key}?",
        "what is [listed|written|stored|given] [for|at|under|next to] {key}?",
        "what stands [behind|after|next to] {key}?",
        "value [of|for] {key}?",
        "{key}",
        "and {key}?",
        "what about {key}?",
        "do you [see|find|know] the value [of|for] {key}?",
        'what is the value [of|for] "{key}"?',
        "the value [of|for] {key} is",
        "[say|name|print|write] the [value|entry] [of|for|next to] {key}.",
        "[where it says|for] {key}, what is [the value|given|written]?",
        "[search|look] for {key}[| and tell me the value| in it].",
        "{key} [is|has|stands for|belongs to|goes with] what?",
        "[what|which value] [comes|stands|is] [with|beside|right of|to the right of] {key}?",
        "[check|see] what [the value of|is given for|stands for] {key}[ is|].",
        "I [look for|search|want to know|ask for] {key}.",
        "[and|now] the [value|entry] [of|for] {key}?",
        "read out {key}.",
        "how [much|many] is {key}?",
    ),
    held_out=(
        "which value is listed for {key}?",
        "please look up what {key} has.",
        "what do I find under {key}?",
        "show me what is written for {key}.",
        "I am looking for the value of {key}.",
        "according to the list, what is {key}?",
        "could you read me the entry of {key}?",
        "tell me the value next to {key}.",
        "what entry do you see for {key}?",
        "report the value of {key}.",
    ),
)
_LINES: Final = Wordings(
    trained=(
        "[show|copy|print|give me|write|repeat] the [lines|entries|pairs] [for|of|with]: {keys}",
        "[show|copy|print|write] the lines with these keys: {keys}",
        "[which|what] lines [are|belong] to these keys: {keys}",
        "[copy|print|show] [these|the following] [lines|entries]: {keys}",
        "[show|copy|print] only [these lines|the lines of]: {keys}",
    ),
    held_out=(
        "please print the whole lines for: {keys}",
        "I need the entries with the keys: {keys}",
        "repeat these lines of the list: {keys}",
        "find the lines for: {keys}",
    ),
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
_SMALL_SHARE: Final = 0.4


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
    question = draw.request(_ONE_VALUE).format(key=table.keys[index])
    return Exchange(question, table.values[index])


def _ask_lines(draw: Draw, table: Table) -> Exchange:
    num_lines = len(table.keys)
    chosen = draw.rng.sample(range(num_lines), min(num_lines, draw.rng.randint(1, 6)))
    keys = ", ".join(table.keys[index] for index in chosen)
    answer = "\n".join(table.line(index) for index in chosen)
    return Exchange(draw.request(_LINES).format(keys=keys), answer)


def table_exchanges(
    draw: Draw,
    table: Table,
    num_questions: int,
    lines_share: float,
    is_question_first: bool | None = None,
) -> list[Exchange]:
    """Return `num_questions` exchanges about `table`; the first question carries the table, before
    it, behind it, or (None) mostly behind it.
    """
    if is_question_first is None:
        is_question_first = draw.rng.random() < _QUESTION_FIRST_SHARE
    frames = _QUESTION_FIRST if is_question_first else _TABLE_FIRST
    exchanges = []
    for number in range(num_questions):
        ask = _ask_lines if draw.rng.random() < lines_share else _ask_one
        exchange = ask(draw, table)
        if number == 0:
            frame = capitalized(draw.pattern(frames))
            question = frame.format(table=table.text(), question=exchange.question)
            exchange = Exchange(question, exchange.answer)
        exchanges.append(exchange)
    return exchanges


def lookup_exchanges(draw: Draw) -> list[Exchange]:
    """Return questions about one table, or about a small table each.

    One question a table would train two tokens for hundreds, so most tables have several. But only
    the first can stand before its table, and that has to be learnt, too: the small tables.
    """
    num_lines = draw_length(draw.rng, 2, MAX_LINES, draw.size**2)
    if num_lines <= _MAX_SMALL and draw.rng.random() < _SMALL_SHARE:
        tables = [draw_table(draw.rng, num_lines) for _ in range(draw.rng.randint(1, 4))]
        return [one for table in tables for one in table_exchanges(draw, table, 1, 0.1)]
    table = draw_table(draw.rng, num_lines)
    num_questions = draw.rng.randint(2, 6) if num_lines <= _MAX_SMALL else draw.rng.randint(6, 12)
    lines_share = 0.7 if draw.rng.random() < 0.5 else 0.0
    return table_exchanges(draw, table, num_questions, lines_share)
