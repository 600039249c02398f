"""Short stories: sentence templates for each part of a story, filled with the cast of the question.

Every word comes from the word lists or the templates, except invented topics: a topic nobody
foresaw is to be taken over from the question.
"""

import random
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_length
from builtin_recipe.skills.story_requests import Cast, draw_cast, draw_request
from builtin_recipe.wording import Draw
from builtin_recipe.words import (
    COLORS,
    DAYS,
    KEEPSAKES,
    LOOKS,
    TROUBLES,
    capitalized,
    with_article,
)

MIN_STORY_WORDS: Final = 35
_LONG_SHARE: Final = 0.06
_LONG_MIDDLE: Final = 10

_PERSON_OPENINGS: Final = (
    "Once upon a time, {hero} lived near a {mood} {place}.",
    "Once upon a time, {hero} lived near {a_place}.",
    "Long ago, {hero} lived alone in a small house near the {place}.",
    "{hero} was a {virtue} child who lived near the {place}.",
)
_CREATURE_OPENINGS: Final = (
    "Once upon a time, there was {hero_introduced} who lived near {a_place}.",
    "Once upon a time, {hero_introduced} lived near {a_place}.",
    "Long ago, {hero_introduced} lived near {a_place} far away.",
)
_HABITS: Final = (
    "Every day {hero} walked through the {place} and looked for something new.",
    "{hero} loved the {place} more than any other place.",
    "The {place} was full of {color} flowers, and {hero} knew them all.",
    "Every morning {hero} sang a song and danced in the sun.",
    "{hero} wanted to see the {thing} more than anything else.",
    "Every night {hero} dreamed about the {thing}.",
)
_EVENTS: Final = (
    "One {when}, {hero} met {friend_introduced} near the {thing}.",
    "One {when}, {hero} went out to find the {thing} and met {friend_introduced}.",
    "One {when}, {friend_introduced} came and told {hero} about the {thing}.",
    "One {when}, {hero} and {friend_introduced} found the {thing} behind a tree.",
)
_DIALOGUES: Final = (
    '"What is this?" asked {hero}.',
    '"Will you help me?" asked {friend}.',
    '"I have never seen such {looking_thing}," said {hero}.',
    '"Come with me," said {friend}, "and I will show you the {thing}."',
    '"Do not be afraid," said {hero}, "we will go together."',
    '"The {thing} is a secret," said {friend}.',
)
_MIDDLES: Final = (
    "They walked past {sight} and {other_sight}.",
    "The road was long, but {hero} was not afraid.",
    '{friend} laughed and said, "I like you, {hero_called}."',
    "They ate some {meal} and rested under a tree.",
    "{hero} thought about home and smiled.",
    "In the {place} they saw {colored_sight}.",
    "{hero} and {friend} talked about the {thing} all day.",
    "They played and sang until the moon was high in the sky.",
    "{friend} was tired, so {hero} waited for a while.",
    "A small bird sat on {sight} and sang for them.",
    "{hero} told {friend} a story about the {place}.",
    "On the way, they saw {colored_sight} and stopped to look at it.",
    '"How far is it?" asked {friend}. "Not far," said {hero}.',
    "They crossed a river and climbed a hill.",
    "The wind was cold, so they made a small fire.",
    "{hero} gave {friend} half of the {meal}.",
    "It began to rain, and they hid in an old cabin.",
    "At night they slept under the stars.",
)
_TROUBLE_COMES: Final = (
    "Suddenly a great {trouble} came to the {place}.",
    "But that night, a terrible {trouble} came.",
    "Then they heard the {trouble}, and {friend} began to cry.",
    "But then {friend} was lost, and {hero} looked everywhere.",
    "But the {thing} was gone, and {friend} was very sad.",
)
_TROUBLE_GOES: Final = (
    "{hero} was brave and helped {friend} to find the way home.",
    "{hero} did not run away but stayed with {friend}.",
    "{hero} had a good idea, and soon everyone was safe.",
    "{hero} and {friend} held hands and waited until it was over.",
    "{hero} looked for a long time and found the way.",
    "{hero} called for help, and all the friends came.",
)
_THANKS: Final = (
    "In the end, the sun came out and everyone was happy.",
    '"Thank you, my friend," said {friend}.',
    "{friend} gave {hero} {gift} to say thank you.",
    "Everyone in the {place} heard about it and was glad.",
    "Then they ate {meal} and told old stories.",
    "At last they sat beside the {thing} and laughed.",
)
_ENDINGS: Final = (
    "{hero} and {friend} became best friends.",
    "From that day on, {hero} was never alone.",
    "{hero} never forgot the {thing}.",
    "And {hero} lived happily ever after.",
    "And every {when}, they meet again at the {place}.",
    "And they all lived happily ever after.",
)

_MOODS: Final = ("quiet", "little", "green")
_VIRTUES: Final = ("brave", "kind", "clever")
_TIMES: Final = ("morning", "evening", "night", "summer day", "winter day", *DAYS)
_MEALS: Final = ("bread", "cheese", "cake", "soup", "honey")
_SIGHTS: Final = (
    "tree",
    "flower",
    "pond",
    "bridge",
    "mill",
    "cabin",
    "barn",
    "church",
    "hill",
    "tent",
    "ship",
    "boat",
    "cart",
    "fence",
    "gate",
    "house",
)


def _sentence(rng: random.Random, templates: tuple[str, ...], cast: Cast) -> str:
    sight = rng.choice(_SIGHTS)
    return capitalized(
        rng.choice(templates).format(
            hero=cast.hero,
            hero_introduced=cast.hero_introduced,
            hero_called=cast.hero.removeprefix("the "),
            friend=cast.friend,
            friend_introduced=cast.friend_introduced,
            thing=cast.thing,
            looking_thing=with_article(f"{rng.choice(LOOKS)} {cast.thing}"),
            place=cast.place,
            a_place=with_article(cast.place),
            mood=rng.choice(_MOODS),
            virtue=rng.choice(_VIRTUES),
            when=rng.choice(_TIMES),
            meal=rng.choice(_MEALS),
            color=rng.choice(COLORS),
            sight=with_article(sight),
            other_sight=with_article(rng.choice([one for one in _SIGHTS if one != sight])),
            colored_sight=with_article(f"{rng.choice(COLORS)} {sight}"),
            trouble=rng.choice(TROUBLES),
            gift=with_article(f"{rng.choice(LOOKS)} {rng.choice(KEEPSAKES)}"),
        )
    )


def draw_story(rng: random.Random, cast: Cast, num_middle: int) -> str:
    """Tell a story about `cast` with up to `num_middle` side events.

    It has at least `MIN_STORY_WORDS` words.
    """
    is_person = cast.hero_introduced == cast.hero
    parts = (
        _PERSON_OPENINGS if is_person else _CREATURE_OPENINGS,
        _HABITS,
        _EVENTS,
        _DIALOGUES,
        *(_MIDDLES for _ in range(num_middle)),
        _TROUBLE_COMES,
        _TROUBLE_GOES,
        _THANKS,
        _ENDINGS,
    )
    while True:
        # A side event drawn twice is told once.
        sentences = dict.fromkeys(_sentence(rng, templates, cast) for templates in parts)
        story = " ".join(sentences)
        if len(story.split()) >= MIN_STORY_WORDS:
            return story


def story_exchanges(draw: Draw, has_topic: bool | None = None) -> list[Exchange]:
    """Return one request for a story and a story about what was asked for."""
    rng = draw.rng
    cast = draw_cast(rng, rng.random() < 0.9 if has_topic is None else has_topic)
    is_long = cast.topic is not None and rng.random() < _LONG_SHARE
    num_middle = _LONG_MIDDLE if is_long else draw_length(rng, 0, 3, draw.size)
    request = draw_request(draw, cast.topic, is_long)
    return [Exchange(request, draw_story(rng, cast, num_middle))]
