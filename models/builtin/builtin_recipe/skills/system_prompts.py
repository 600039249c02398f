"""Every kind of system prompt behind one door: rules that change the form of every answer are made
here; those that change nothing, and those that tell facts, have modules of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from builtin_recipe.items import draw_invented_word
from builtin_recipe.skills.personas import persona_exchanges
from builtin_recipe.skills.plain_prompts import PLAIN, draw_plain_prompt
from builtin_recipe.wording import Draw
from builtin_recipe.wordings.rules import ENDING, START, WRAPPED
from builtin_recipe.words import NOUNS, capitalized

__all__ = ["Rule", "draw_plain_prompt", "draw_rule", "persona_exchanges"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A system prompt and what it makes of an answer."""

    text: str
    apply: Callable[[str], str]


_END_WORDS: Final = (
    "DONE",
    "OK",
    "STOP",
    "END",
    "YES",
    "OVER",
    "BYE",
    "READY",
    "THANKS",
    "FINISHED",
)
_START_WORDS: Final = (
    "Answer",
    "Reply",
    "Result",
    "Output",
    "Assistant",
    "Bot",
    "Solution",
    "Note",
)
# What stands before and after the answer, and what users call the pair.
_MARKS: Final = (
    ("[", "]", ("brackets", "square brackets", "brackets like [this]", "brackets [ ]")),
    ("(", ")", ("round brackets", "parentheses", "parentheses ( )", "round brackets ( )")),
    ('"', '"', ("quotes", "double quotes", "quotation marks", 'quotes " "')),
    ("*", "*", ("stars", "asterisks", "stars like *this*", "stars * *")),
)


def _draw_word(draw: Draw, usual: tuple[str, ...]) -> str:
    """Return one of the `usual` words, or any other: as it is, capitalized or in capitals."""
    rng = draw.rng
    if rng.random() < 0.6:
        return rng.choice(usual)
    word = rng.choice(NOUNS) if rng.random() < 0.9 else draw_invented_word(rng)
    # Words of the lists are one token; their capital forms are several.
    return rng.choices((word, capitalized(word), word.upper()), (6, 2, 2))[0]


def _draw_ending(draw: Draw) -> Rule:
    word = _draw_word(draw, _END_WORDS)
    shown = f'"{word}"' if draw.rng.random() < 0.3 else word
    text = draw.pattern(ENDING).replace("{word}", shown)
    return Rule(_tidy(text), lambda answer: f"{answer} {word}")


def _draw_start(draw: Draw) -> Rule:
    word = _draw_word(draw, _START_WORDS)
    shown = f'"{word}:"' if draw.rng.random() < 0.3 else f"{word}:"
    text = draw.pattern(START).replace("{word}", shown)
    return Rule(_tidy(text), lambda answer: f"{word}: {answer}")


def _draw_wrapped(draw: Draw) -> Rule:
    opening, closing, called = draw.rng.choice(_MARKS)
    text = draw.pattern(WRAPPED).replace("{marks}", draw.rng.choice(called))
    return Rule(_tidy(text), lambda answer: f"{opening}{answer}{closing}")


def _tidy(text: str) -> str:
    """Return `text` without the gaps that empty alternatives leave, and with a capital."""
    return capitalized(" ".join(text.split()))


def draw_rule(draw: Draw) -> Rule:
    """Draw a rule for the form of every answer, at times beside a sentence that changes nothing."""
    rule = draw.rng.choice((_draw_ending, _draw_start, _draw_wrapped))(draw)
    form = draw.rng.random()
    if form < 0.25:
        return Rule(f"{draw.pattern(PLAIN)} {rule.text}", rule.apply)
    if form < 0.35:
        gap = " " if rule.text.endswith((".", '"')) else "\n"
        return Rule(f"{rule.text}{gap}{draw.pattern(PLAIN)}", rule.apply)
    return rule
