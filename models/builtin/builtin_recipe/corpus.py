"""The corpus: a registry of skills and the draw of whole conversations from a mix; the same seed
gives the same text.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from builtin_recipe import words
from builtin_recipe.conversation import Conversation, Exchange, make_conversation
from builtin_recipe.items import ItemKind
from builtin_recipe.skills.facts import fact_exchanges
from builtin_recipe.skills.json_objects import json_exchanges
from builtin_recipe.skills.lists import (
    any_copy_exchanges,
    copy_exchanges,
    count_exchanges,
    pick_exchanges,
    reverse_exchanges,
)
from builtin_recipe.skills.numbers import arithmetic_exchanges, sequence_exchanges
from builtin_recipe.skills.stories import (
    draw_long_story,
    draw_story,
    long_story_exchanges,
    story_exchanges,
)
from builtin_recipe.skills.story_requests import draw_cast
from builtin_recipe.skills.system_prompts import draw_plain_prompt, draw_rule, persona_exchanges
from builtin_recipe.skills.tables import lookup_exchanges
from builtin_recipe.skills.talk import (
    FIXED_ANSWERS,
    open_question_exchanges,
    small_talk_exchanges,
)
from builtin_recipe.wording import Draw

Skill = Callable[[Draw], list[Exchange]]
Mix = Mapping[str, float]

LONG_STORY_SKILL: Final = "long story"
SKILLS: Final[Mapping[str, Skill]] = {
    "copy": any_copy_exchanges,
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
    LONG_STORY_SKILL: long_story_exchanges,
}
SYSTEM_SKILL: Final = "system prompt"

# Copying and lookup first: the other skills build on the same attention patterns.
EARLY_MIX: Final[Mix] = {
    "copy": 34.0,
    "lookup": 44.0,
    "story": 2.0,
    "json": 5.0,
    "reverse": 6.0,
    "sequence": 4.0,
    "fact": 4.0,
    "arithmetic": 3.0,
    "pick": 4.0,
    "count": 1.0,
    SYSTEM_SKILL: 2.0,
    "small talk": 1.0,
    "open question": 2.0,
}
# A story has some fifty times the labelled tokens of a looked-up value, so its weight is small.
MAIN_MIX: Final[Mix] = {
    "copy": 13.0,
    "lookup": 26.0,
    "story": 4.0,
    "json": 13.0,
    "reverse": 9.0,
    "sequence": 7.0,
    "fact": 9.0,
    "arithmetic": 7.0,
    "pick": 5.0,
    "count": 5.0,
    SYSTEM_SKILL: 12.0,
    "small talk": 5.0,
    "open question": 8.0,
}
# A long story fits in no shorter row, and takes up most of one.
MIDDLE_MIX: Final[Mix] = {**MAIN_MIX, LONG_STORY_SKILL: 3.0}
LONG_MIX: Final[Mix] = {
    "lookup": 70.0,
    "copy": 10.0,
    "story": 5.0,
    LONG_STORY_SKILL: 3.0,
    "fact": 6.0,
    SYSTEM_SKILL: 6.0,
}

# A rule is judged with the answer it changes, so the answers under one are of the surer kinds.
_RULED_SKILLS: Final[tuple[Skill, ...]] = (
    partial(copy_exchanges, kind=ItemKind.WORD),
    partial(copy_exchanges, kind=ItemKind.WORD),
    partial(pick_exchanges, kind=ItemKind.WORD),
    fact_exchanges,
    sequence_exchanges,
    small_talk_exchanges,
)
_NEXT_TURN_SKILLS: Final = tuple(
    name for name in SKILLS if name not in ("lookup", "fact", "open question", LONG_STORY_SKILL)
)
_PERSONA_SHARE: Final = 0.35
_PLAIN_PROMPT_SHARE: Final = 0.25
_NEXT_TURN_SHARE: Final = 0.22
_RULED_SIZE: Final = 0.3
# How many requests have their words changed at random, so that users' own words mislead less.
_LOOSENESS: Final = 0.15


def ruled_conversation(draw: Draw) -> Conversation:
    """Return one or two exchanges under a system prompt that decides something in the answers."""
    if draw.rng.random() < _PERSONA_SHARE:
        prompt, exchanges = persona_exchanges(draw)
        return make_conversation(exchanges, prompt)
    rule = draw_rule(draw)
    small = replace(draw, size=min(draw.size, _RULED_SIZE))
    exchanges = []
    # Without repeats: the second talk about facts would ask for one as untold that the first told.
    for skill in draw.rng.sample(_RULED_SKILLS, draw.rng.randint(1, 2)):
        exchanges += skill(small)
    ruled = [Exchange(one.question, rule.apply(one.answer)) for one in exchanges]
    return make_conversation(ruled, rule.text)


def draw_conversation(
    rng: random.Random, size: float, mix: Mix = MAIN_MIX, skill: str | None = None
) -> Conversation:
    """Draw a conversation in trained wordings: one skill of `mix` (or `skill`), sometimes others
    after it.

    `size` between 0 and 1 steers the length of lists and tables.
    """
    draw = Draw(rng, size, looseness=_LOOSENESS)
    if skill is None:
        skill = rng.choices(list(mix), list(mix.values()))[0]
    if skill == SYSTEM_SKILL:
        return ruled_conversation(draw)
    exchanges = SKILLS[skill](draw)
    while skill != "lookup" and rng.random() < _NEXT_TURN_SHARE:
        exchanges = exchanges + SKILLS[rng.choice(_NEXT_TURN_SKILLS)](draw)
    system = draw_plain_prompt(draw) if rng.random() < _PLAIN_PROMPT_SHARE else None
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
        figures = (cast.hero, cast.hero_introduced, cast.friend, cast.thing)
        later = [name for one in cast.more for name in (one.friend, one.thing)]
        cast_words = text_words(" ".join((*figures, *later)))
        # Invented topics are no vocabulary.
        if found.issuperset(set(cast_words) - _CAST_GRAMMAR):
            found.update(text_words(draw_story(rng, cast, num_middle=3)))
            found.update(text_words(draw_long_story(rng, cast)))
    return sorted(found)
