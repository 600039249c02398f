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
        "[here is|this is|look at|see|read] [a list|a table|my list|the list|the table|some data]"
        "[:|.]\n{table}\n[|\n]{question}",
        "[we know|we have|I know] [this|the following|these things][:|.]\n{table}\n[|\n]{question}",
        "[use|read|take] [this|the following] [table|list|data][:|.|]\n{table}\n[|\n]{question}",
        "[today's|the new|the old|the full] [list|table|entries][:|.]\n{table}\n[|\n]{question}",
        "[remember|learn] [these|the following] [values|lines][:|.]\n{table}\n[|\n]{question}",
        "[a list|a table|some lines] [to read|for you|of mine][:|.]\n{table}\n[|\n]{question}",
        "[I have|we have|there is] [a list|a table|this list][|.|:]\n{table}\n[|\n]{question}",
        "[answer|answer the question] from [this|the] [list|table].\n{table}\n[|\n]{question}",
        "[please study the following list|take the values from here].\n{table}\n\n{question}",
        "[table|list|data|context|values|notes]:\n{table}\n[|\n][|question: |q: ]{question}",
        "[work|deal|go on] with [this|these lines|the list][:|.]\n{table}\n[|\n]{question}",
        "[these|here] are [some|the|my] [values|pairs|lines]:\n{table}\n[|\n]{question}",
        "[start|begin] of [the |]list:\n{table}\nend of [the |]list.\n[|\n]{question}",
        "[the lines are these|the data is|I wrote this down]:\n{table}\n\n{question}",
        "[read|look at] the list and answer.\n{table}\n[question: |q: |]{question}",
        "{table}\n\n[that is|this was] [the list|my table|all][.|!] {question}",
        "[file|text|document|input|facts]:\n{table}\n\n[|question: ]{question}",
        "with the help of this list\n{table}\nanswer the following. {question}",
        "[my|the|our] [table|list|notes|data][:|.]\n{table}\n[|\n]{question}",
        "I will show you a table.\n{table}\nHere is my question: {question}",
        *("[given|from] [this|the] [table|list]:\n{table}\n[|\n]{question}", "{table}\n{question}"),
        *("{table}\n\n[a task|my task for you|what to do]: {question}", "{table}\n\n{question}"),
        "{table}\n\n[now|so|please answer|my question]: {question}",
        *("a table follows.\n{table}\nNow answer: {question}", "{table}\n\nquestion: {question}"),
    ),
    held_out=(
        "below you see my notes.\n{table}\n\nOne question about them: {question}",
        "everything you need is in this table:\n{table}\n\n{question}",
        "can you help me with this table?\n{table}\n\n{question}",
        "I got this from a friend:\n{table}\n\n{question}",
        "go through these entries:\n{table}\n\n{question}",
        "these values were saved:\n{table}\n\n{question}",
        "{table}\n\nAbout the lines above: {question}",
        "this is what I have:\n{table}\n\n{question}",
    ),
)
# Harder: the key has to be kept in mind until its line comes.
_QUESTION_FIRST: Final = Wordings(
    trained=(
        "{question} [use|see|look in|it is in|look it up in] [this|the] [list|table][:|.]\n{table}",
        "[first|here is] my question: {question} [then|now] the [list|table|data]:\n{table}",
        "{question} [Use the data below.\n|You find it in these lines:]\n{table}",
        "{question} [here is|this is] the [table|list|data][:|.]\n{table}",
        *("task: {question}\n\n[input|values|context|notes]:\n{table}", "{question}\n\n{table}"),
        *("answer from the lines that follow. {question}\n\n{table}", "{question}\n{table}"),
        "please answer this with my notes: {question}\n\n{table}",
        "question: {question}\n[table|list|data]:\n{table}",
    ),
    held_out=(
        "I want to ask you about a table. {question}\n\n{table}",
        "{question} I have the following values:\n\n{table}",
        "{question} All values are listed here:\n{table}",
        "{question}\nThe table for this:\n{table}",
    ),
)
_QUESTION_FIRST_SHARE: Final = 0.2
_QUESTION_FIRST_SHARE_SMALL: Final = 0.6
# Lines and several values hold more labelled tokens than one value, all found by the same means.
_LINES_SHARE_FIRST: Final = 0.35
_VALUES_SHARE: Final = 0.12
_ONE_VALUE: Final = Wordings(
    trained=(
        "[find|look up|get|read|show|return] [the value of|the value for|the entry for] {key}.",
        "which [value|entry|item|word] [belongs to|goes with|stands behind|is next to] {key}?",
        "[give|tell|show] me [the value for|the value of|the entry for|the value at] {key}.",
        "[what|which value] [comes|stands|is] [with|beside|right of|to the right of] {key}?",
        "[can|could] you [find|look up|tell me|give me] [the value of|what is at] {key}?",
        *("what [value|entry] [belongs to|goes with|stands for|is given for] {key}?", "and {key}?"),
        *("[check|see] what [the value of|is given for|stands for] {key}[ is|].", "what is {key}?"),
        *("what is [listed|written|stored|given] [for|at|under|next to] {key}?", "read out {key}."),
        *("[what|which value] [must|should|can] I [write|use|put] for {key}?", "what about {key}?"),
        *("[say|name|print|write] the [value|entry] [of|for|next to] {key}.", "{key}"),
        "[now to|on|about] {key}: what [does it say|is there|is written]?",
        "[I need|I want|I would like] the [value|entry] [of|for] {key}.",
        *("[where it says|for] {key}, what is [the value|given|written]?", "value [of|for] {key}?"),
        "[what does|what did] the [table|list] say [about|for] {key}?",
        "{key} [means|shows|points to|leads to] [what|which value]?",
        *("[pick|choose|take] the [value|entry] [of|for|with] {key}.", "how [much|many] is {key}?"),
        *("[search|look] for {key}[| and tell me the value| in it].", "report the value of {key}."),
        *("{key} [is|has|stands for|belongs to|goes with] what?", "please look up what {key} has."),
        *("what is the [value|entry|number] [of|for] {key}?", "[tell me|say|write] what {key} is."),
        *("do you [see|find|know] the value [of|for] {key}?", "show me what is written for {key}."),
        *("I [look for|search|want to know|ask for] {key}.", 'what is the value [of|for] "{key}"?'),
        *("[and|now] the [value|entry] [of|for] {key}?", "according to the list, what is {key}?"),
        *("[find|look up|get|read|show|return] {key}.", "could you read me the entry of {key}?"),
        *("what stands [behind|after|next to] {key}?", "I am looking for the value of {key}."),
        *("which value is listed for {key}?", "tell me the value next to {key}."),
        *("what entry do you see for {key}?", "what value does {key} have?"),
        *("the value [of|for] {key} is", "what do I find under {key}?"),
    ),
    held_out=(
        *("which value was saved for {key}?", "let me know the value of {key}."),
        *("answer with the value of {key}.", "could you check {key} for me?"),
        *("what do you have for {key}?", "what did I note for {key}?", "I forgot what {key} was."),
        *("fetch the value for {key}.", "what does {key} equal?", "what is {key} set to?"),
    ),
)
_LINES: Final = Wordings(
    trained=(
        "[show|copy|print|give me|write|repeat] the [lines|entries|pairs] [for|of|with]: {keys}",
        "[take|get|pick] [these|the following] keys and [copy|show|print] their lines: {keys}",
        "[copy|print|show] [these|the following] [lines|entries]: {keys}",
        "[show|copy|print|write] the lines with these keys: {keys}",
        "[show|copy|print] only [these lines|the lines of]: {keys}",
        "[which|what] lines [are|belong] to these keys: {keys}",
        "[lines|entries|pairs] [for|of|with the keys]: {keys}",
        *("please print the whole lines for: {keys}", "I need the entries with the keys: {keys}"),
        *("[repeat these|find the] lines: {keys}", "{keys}: [copy|show] these lines"),
    ),
    held_out=(
        "what do the lines of these keys look like: {keys}",
        "I would like to see the full lines for: {keys}",
        "write out each of these lines in full: {keys}",
        "can you list the complete lines of: {keys}",
    ),
)
_VALUES: Final = Wordings(
    trained=(
        "[can|could] you [look up|find|tell me] the values [of|for] {keys}?",
        "[find|look up|get|list|write|read] the values [of|for] {keys}.",
        "[which|what] values [belong to|go with|are given for] {keys}?",
        *("[give|tell|show] me the [values|entries] [of|for] {keys}.", "values [of|for]: {keys}"),
        *("[what stands|what is] [next to|behind|at|for] {keys}?", "[look up|find|get] {keys}."),
        "what are the [values|entries] [of|for] {keys}?",
        "I need the [values|entries] [of|for] {keys}.",
    ),
    held_out=(
        "please tell me what is listed for {keys}.",
        *("which values stand in the lines of {keys}?", "what do {keys} have as values?"),
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
    question = draw.request(_ONE_VALUE).format(key=table.keys[index])
    return Exchange(question, table.values[index])


def _ask_lines(draw: Draw, table: Table) -> Exchange:
    num_lines = len(table.keys)
    chosen = draw.rng.sample(range(num_lines), min(num_lines, draw.rng.randint(1, 6)))
    keys = ", ".join(table.keys[index] for index in chosen)
    answer = "\n".join(table.line(index) for index in chosen)
    return Exchange(draw.request(_LINES).format(keys=keys), answer)


def _ask_values(draw: Draw, table: Table) -> Exchange:
    num_lines = len(table.keys)
    chosen = draw.rng.sample(range(num_lines), min(num_lines, draw.rng.randint(2, 4)))
    *first, last = [table.keys[index] for index in chosen]
    keys = ", ".join(first) + draw.rng.choice((", ", " and ")) + last if first else last
    answer = ", ".join(table.values[index] for index in chosen)
    return Exchange(draw.request(_VALUES).format(keys=keys), answer)


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
    frames = _QUESTION_FIRST if is_question_first else _TABLE_FIRST
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
