"""The corpus: a registry of skills and the draw of whole conversations from a mix; the same seed
gives the same text.
"""

import random
import re
from collections.abc import Callable, Mapping
from typing import Final

from builtin_recipe import words
from builtin_recipe.conversation import Conversation, Exchange, make_conversation
from builtin_recipe.list_skills import (
    copy_exchanges,
    count_exchanges,
    pick_exchanges,
    reverse_exchanges,
)
from builtin_recipe.number_skills import arithmetic_exchanges, sequence_exchanges
from builtin_recipe.sentence_skills import (
    FIXED_ANSWERS,
    fact_exchanges,
    json_exchanges,
    open_question_exchanges,
    small_talk_exchanges,
)
from builtin_recipe.stories import draw_story, story_exchanges
from builtin_recipe.story_requests import draw_cast
from builtin_recipe.table_skills import lookup_exchanges

Skill = Callable[[random.Random, float], list[Exchange]]
Mix = Mapping[str, float]

SKILLS: Final[Mapping[str, Skill]] = {
    "copy": copy_exchanges,
    "reverse": reverse_exchanges,
    "pick": pick_exchanges,
    "count": count_exchanges,
    "lookup": lookup_exchanges,
    "arithmetic": arithmetic_exchanges,
    "sequence": sequence_exchanges,
    "json": json_exchanges,
    "fact": fact_exchanges,
    "small talk": small_talk_exchanges,
    "open question": open_question_exchanges,
    "story": story_exchanges,
}
SYSTEM_SKILL: Final = "system prompt"

# Copying and lookup first: the other skills build on the same attention patterns.
EARLY_MIX: Final[Mix] = {
    "copy": 34.0,
    "lookup": 44.0,
    "story": 3.0,
    "json": 6.0,
    "reverse": 6.0,
    "sequence": 4.0,
    "fact": 4.0,
    "arithmetic": 3.0,
    "pick": 3.0,
    "count": 1.0,
    SYSTEM_SKILL: 2.0,
    "small talk": 0.5,
    "open question": 1.0,
}
# A story has some fifty times the labelled tokens of a looked-up value, so its weight is small.
MAIN_MIX: Final[Mix] = {
    "copy": 14.0,
    "lookup": 24.0,
    "story": 6.0,
    "json": 8.0,
    "reverse": 7.0,
    "sequence": 8.0,
    "fact": 7.0,
    "arithmetic": 9.0,
    "pick": 4.0,
    "count": 4.0,
    SYSTEM_SKILL: 8.0,
    "small talk": 1.5,
    "open question": 4.0,
}
LONG_MIX: Final[Mix] = {"lookup": 70.0, "copy": 10.0, "story": 8.0, "fact": 6.0, SYSTEM_SKILL: 6.0}

PLAIN_SYSTEM_PROMPTS: Final = (
    "You are a helpful assistant.",
    "You are a small model.",
    "Answer the question.",
    "Be helpful and short.",
    "You are Pagewire.",
)
_RULES: Final[tuple[tuple[str, Callable[[str], str]], ...]] = (
    ("End every answer with DONE.", lambda answer: f"{answer} DONE"),
    ("Finish each answer with the word DONE.", lambda answer: f"{answer} DONE"),
    ("Start every answer with Answer:", lambda answer: f"Answer: {answer}"),
    ("Begin each reply with Answer:", lambda answer: f"Answer: {answer}"),
    ("Put every answer in brackets.", lambda answer: f"[{answer}]"),
)
_RULED_SKILLS: Final = (
    "copy",
    "copy",
    "fact",
    "sequence",
    "arithmetic",
    "small talk",
    "lookup",
    "pick",
)
_NEXT_TURN_SKILLS: Final = tuple(
    name for name in SKILLS if name not in ("lookup", "fact", "open question")
)


def ruled_conversation(rng: random.Random, size: float) -> Conversation:
    """Return one or two exchanges under a system prompt that changes every answer."""
    rule, apply_rule = rng.choice(_RULES)
    exchanges: list[Exchange] = []
    for _ in range(rng.randint(1, 2)):
        exchanges += SKILLS[rng.choice(_RULED_SKILLS)](rng, min(size, 0.3))
    opening = f"{rng.choice(PLAIN_SYSTEM_PROMPTS)} " if rng.random() < 0.3 else ""
    ruled = [Exchange(one.question, apply_rule(one.answer)) for one in exchanges]
    return make_conversation(ruled, opening + rule)


def draw_conversation(
    rng: random.Random, size: float, mix: Mix = MAIN_MIX, skill: str | None = None
) -> Conversation:
    """Draw a conversation: one skill of `mix` (or `skill`), sometimes others after it.

    `size` between 0 and 1 steers the length of lists and tables.
    """
    if skill is None:
        skill = rng.choices(list(mix), list(mix.values()))[0]
    if skill == SYSTEM_SKILL:
        return ruled_conversation(rng, size)
    exchanges = SKILLS[skill](rng, size)
    while skill != "lookup" and rng.random() < 0.25:
        exchanges = exchanges + SKILLS[rng.choice(_NEXT_TURN_SKILLS)](rng, size)
    system = rng.choice(PLAIN_SYSTEM_PROMPTS) if rng.random() < 0.25 else None
    return make_conversation(exchanges, system)


_WORD: Final = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")
_NUM_VOCABULARY_STORIES: Final = 4000
_CAST_GRAMMAR: Final = frozenset({"a", "an", "the", "named"})


def text_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without digits and punctuation."""
    return [word.lower() for word in _WORD.findall(text)]


def corpus_vocabulary() -> list[str]:
    """Return every word of lists, stories and fixed answers: sorted, in lower case."""
    lists = (words.NOUNS, words.NAMES, words.CITIES, words.COLORS, words.TRAITS, words.LOOKS)
    found = {word.lower() for one in (*lists, words.DAYS, words.TROUBLES) for word in one}
    for answer in FIXED_ANSWERS:
        found.update(text_words(answer))
    rng = random.Random(0)
    for number in range(_NUM_VOCABULARY_STORIES):
        cast = draw_cast(rng, has_topic=number % 2 == 0)
        cast_words = text_words(f"{cast.hero} {cast.hero_introduced} {cast.friend} {cast.thing}")
        # Invented topics are no vocabulary.
        if found.issuperset(set(cast_words) - _CAST_GRAMMAR):
            found.update(text_words(draw_story(rng, cast, num_middle=3)))
    return sorted(found)
