"""Every kind of system prompt behind one door: rules that change the form of every answer are made
here; those that change nothing, and those that tell facts, have modules of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from builtin_recipe.items import draw_invented_word
from builtin_recipe.skills.personas import persona_exchanges
from builtin_recipe.skills.plain_prompts import PLAIN, draw_plain_prompt
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import NOUNS, capitalized

__all__ = ["Rule", "draw_plain_prompt", "draw_rule", "persona_exchanges"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A system prompt and what it makes of an answer."""

    text: str
    apply: Callable[[str], str]


_ENDING: Final = Wordings(
    trained=(
        "[End|Finish|Close] [every|each] [answer|reply|response] with {word}.",
        "[End|Finish|Close] all[ of your| your|] answers with the word {word}.",
        "[Every|Each] [answer|reply|response] [ends|must end|has to end|should end] with {word}.",
        "[Always|Please] [end|finish|close] with [the word |]{word}.",
        "[Always|] [say|write|add|put] {word} at the end of [every|each|the|your] [answer|reply].",
        "After [every|each] [answer|reply], [write|say|add] {word}.",
        "[Your answers|Your replies|All answers|All replies] end with [the word |]{word}.",
        "At the end of [every|each] [answer|reply], [write|say|add] [the word |]{word}.",
        "The last word of [every|each] [answer|reply] [is|must be] {word}.",
        "Add {word} to the end of [every|each] [answer|reply|response].",
        "I want {word} at the end of [every|each] [answer|reply|response].",
        "Make [every|each] [answer|reply|response] end with [the word |]{word}.",
        "Do not forget [to write |to say |]{word} at the end[| of your answer| of every reply].",
        "[Every|Each] [answer|reply] [is followed by|closes with] [the word |]{word}.",
        "[The end|The last thing] [of|in] [every|each] [answer|reply|response] is {word}.",
        "[You end|You finish|You must end|You always end] [every|each] [answer|reply] with {word}.",
        "[First|] answer and then [say|write|add] [the word |]{word}.",
        "[Use|Take] {word} as the last word of [every|each|your] [answer|reply].",
        "[When|If] [you are done|you have answered|an answer is done], [say|write|add] {word}.",
        "[All|Your|The] [answers|replies] must [end|finish|close] with [the word |]{word}.",
        "There [is|must be] [a |the word |]{word} at the end of [every|each|any] [answer|reply].",
        "{word} [comes|stands|must stand] at the end of [every|each|any] [answer|reply].",
        "Whatever you say, finish it with the word {word}.",
        *("Put the word {word} behind every answer.", "Every reply has {word} as its last word."),
        "When you answer, the end must be {word}.",
        *("Never forget to end your reply with {word}.", "Let all your answers end in {word}."),
        "[Append|Attach] {word} to [every|each|your] [answer|reply].",
        "Sign [every|each|your] [answer|reply] with {word}.",
        "{word} [ends|closes|finishes] [every|each|your] [answer|reply].",
        "[Let|Have] [every|each] [answer|reply] [close|finish] with {word}.",
    ),
    held_out=(
        *("{word} is always the last thing you say.", "Your final word is always {word}."),
        *("Before you stop, say {word}.", "You should close all your messages with {word}."),
        "Once you have given the answer, add {word}.",
        "Every message of yours should have {word} at the very end.",
    ),
)
_START: Final = Wordings(
    trained=(
        "[Start|Begin|Open] [every|each] [answer|reply|response] with {word}",
        "[Start|Begin] [all|] your answers with {word}",
        "[Every|Each] [answer|reply|response] [starts|begins|must start|has to begin] with {word}",
        "[Always|Please] [start|begin] with {word}",
        "[Always|] [say|write|put] {word} at the [start|beginning] of [every|each|your] answer.",
        "Before [every|each] [answer|reply], [write|say|put] {word}",
        "[Your answers|All answers|Your replies] [start|begin] with {word}",
        "At the [start|beginning] of [every|each] [answer|reply], [write|say] {word}",
        "The first word of [every|each] [answer|reply] is {word}",
        "[Write|Put|Say] {word} before [every|each] [answer|reply|response].",
        "I want {word} at the [start|beginning] of [every|each] [answer|reply|response].",
        "Make [every|each] [answer|reply|response] [start|begin|open] with {word}",
        "Do not forget {word} at the [start|beginning][| of your answer| of every reply].",
        "[Every|Each] [answer|reply] [comes after|follows|opens with] {word}",
        "[The start|The first thing] [of|in] [every|each] [answer|reply|response] is {word}",
        "[You start|You must start|You always begin] [every|each] [answer|reply] with {word}",
        "[Say|Write] {word} first and [then answer|answer after it].",
        "[Use|Take] {word} as the first word of [every|each|your] [answer|reply].",
        "[When|If] you [answer|reply], [start|begin|open] with {word}",
        "[All|Your|The] [answers|replies] must [start|begin|open] with {word}",
        "There [is|must be] {word} at the [start|beginning] of [every|each|any] [answer|reply].",
        "{word} [comes|stands|must stand] before [every|each|any] [answer|reply].",
        *("Whatever you say, begin it with {word}", "Put {word} in front of every answer."),
        *("Every reply has {word} as its first word.", "When you answer, the start must be {word}"),
        "Never forget to begin your reply with {word}",
        "First write {word} and then your answer.",
        "[Prefix|Precede] [every|each|your] [answer|reply] with {word}",
        "[Add|Attach] {word} to the [front|start] of [every|each|your] [answer|reply].",
        "[Let|Have] [every|each] [answer|reply] [begin|open] with {word}",
        "[Your answers|Your replies] come [behind|after] {word}",
    ),
    held_out=(
        *("{word} is always the first thing you say.", "Your first word is always {word}"),
        "Each time you speak, {word} comes first.",
        "You should open all your messages with {word}",
        "No answer comes without {word} in front.",
        "Every message of yours should have {word} at the very start.",
    ),
)
_WRAPPED: Final = Wordings(
    trained=(
        "[Put|Write|Place|Give] [every|each] [answer|reply|response] in {marks}.",
        "[Put|Write|Place] [all|] your answers in {marks}.",
        "[Every|Each] [answer|reply|response] [is|must be|stands|has to be] in {marks}.",
        "[Always|Please] [answer|reply] in {marks}.",
        "[Always|] [use|write] {marks} around [every|each|the|your] [answer|reply].",
        "[Your answers|All answers|Your replies] [are|must be|stand] in {marks}.",
        "[Set|Enclose|Wrap] [every|each|the|your] [answer|reply] in {marks}.",
        "Put {marks} around [every|each|the|your] [answer|reply|response].",
        "[Answer|Reply] only in {marks}.",
        "I want [every|each] [answer|reply|response] in {marks}.",
        "I want {marks} around [every|each|your] [answer|reply|response].",
        "Make [every|each] [answer|reply|response] stand in {marks}.",
        "Do not forget [the |]{marks} around [your|the|every|each] [answer|reply].",
        "[Every|Each] [answer|reply] [goes in|comes in|belongs in|is written in] {marks}.",
        "[You answer|You reply|You always answer|You must answer] in {marks}.",
        "[All|Your|The] [answers|replies] [go in|come in|belong in|must be in] {marks}.",
        "[Add|Set|Draw] {marks} around [every|each|your|the] [answer|reply].",
        "[Use|Take] {marks} for [every|each|your|the] [answer|reply|response].",
        "[Surround|Close in|Frame] [every|each|the|your] [answer|reply] with {marks}.",
        "[Keep|Hold|Show] [every|each|your|the] [answer|reply] in {marks}.",
        "[When|If] you [answer|reply], use {marks}.",
        *("Whatever you say, put it in {marks}.", "There are {marks} around every answer."),
        *("Let all your replies stand in {marks}.", "Every reply has {marks} around it."),
        "When you answer, write the answer in {marks}.",
        "[Begin and end|Open and close] [every|each|your] [answer|reply] with {marks}.",
        "[Pack|Box] [every|each|your] [answer|reply] into {marks}.",
        "{marks} [enclose|surround|belong around] [every|each|your] [answer|reply].",
        "[Return|Give|Send] [every|each|the] [answer|reply] wrapped in {marks}.",
    ),
    held_out=(
        "Users should see your answers in {marks}.",
        *("Type {marks} before and after every answer.", "Your answer is always between {marks}."),
        "All you say should be inside {marks}.",
        "I only want to see answers that have {marks} around them.",
    ),
)
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
    text = draw.pattern(_ENDING).replace("{word}", shown)
    return Rule(_tidy(text), lambda answer: f"{answer} {word}")


def _draw_start(draw: Draw) -> Rule:
    word = _draw_word(draw, _START_WORDS)
    shown = f'"{word}:"' if draw.rng.random() < 0.3 else f"{word}:"
    text = draw.pattern(_START).replace("{word}", shown)
    return Rule(_tidy(text), lambda answer: f"{word}: {answer}")


def _draw_wrapped(draw: Draw) -> Rule:
    opening, closing, called = draw.rng.choice(_MARKS)
    text = draw.pattern(_WRAPPED).replace("{marks}", draw.rng.choice(called))
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
