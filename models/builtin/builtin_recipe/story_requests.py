"""How users ask for a story: the wordings, and the cast that a question names.

It owns no sentence of a story.
"""

import random
from dataclasses import dataclass
from typing import Final

from builtin_recipe.items import draw_invented_word
from builtin_recipe.words import (
    ANIMALS,
    KEEPSAKES,
    NAMES,
    NOUNS,
    PEOPLE,
    PLACES,
    TRAITS,
    plural,
    with_article,
)

_LIVING: Final = ANIMALS + PEOPLE
_THINGS: Final = tuple(noun for noun in NOUNS if noun not in _LIVING)

TOPIC_REQUESTS: Final = (
    "Tell me a story about {t}.",
    "Tell me a short story about {t}.",
    "Write a story about {t}.",
    "Write a short story about {t}.",
    "Write me a story about {t}.",
    "Write me a short story about {t}.",
    "Can you tell me a story about {t}?",
    "Can you tell me a short story about {t}?",
    "Can you write a story about {t}?",
    "Could you tell me a story about {t}?",
    "Could you write a short story about {t}?",
    "I want to hear a story about {t}.",
    "I would like a story about {t}.",
    "I would like to read a short story about {t}.",
    "Please tell me a story about {t}.",
    "Please write a short story about {t}.",
    "Make up a story about {t}.",
    "Make up a short story about {t}.",
    "Give me a story about {t}.",
    "Give me a short story about {t}.",
    "Tell a story about {t}.",
    "Tell us a story about {t}.",
    "Tell me a bedtime story about {t}.",
    "Tell me a nice story about {t}.",
    "Tell me a little story about {t}.",
    "Tell me something about {t}, as a story.",
    "Tell me about {t}, and start with once upon a time.",
    "Once upon a time there was a story about {t}. Tell it.",
    "Do you know a story about {t}?",
    "Let us hear a story about {t}.",
    "Hello! Tell me a story about {t}.",
    "A story about {t}, please.",
    "Story about {t}",
    "A short story about {t}",
)
OPEN_REQUESTS: Final = (
    "Tell me a story.",
    "Tell me a short story.",
    "Write a story.",
    "Write a short story.",
    "Write me a story.",
    "Can you tell me a story?",
    "Can you tell me a short story?",
    "Could you tell me a story?",
    "Please tell me a story.",
    "Please write a short story.",
    "I want to hear a story.",
    "I would like to hear a story.",
    "Make up a story.",
    "Give me a short story.",
    "Tell me a bedtime story.",
    "Tell us a story.",
    "Do you know a story?",
    "Start with once upon a time and tell me a story.",
    "Once upon a time",
    "A story, please.",
)
LONG_REQUESTS: Final = (
    "Tell me a long story about {t}.",
    "Write a long story about {t}.",
    "Please write a longer story about {t}.",
)


@dataclass(frozen=True, slots=True)
class Cast:
    """Who and what a story is about; `hero` and `friend` are ready for use inside a sentence."""

    hero: str
    hero_introduced: str
    friend: str
    friend_introduced: str
    thing: str
    place: str
    topic: str | None


@dataclass(frozen=True, slots=True)
class _Figure:
    """One character: its name in the question, at its first and at its later appearances."""

    asked: str
    introduced: str
    later: str


def _person(rng: random.Random, taken: str = "") -> _Figure:
    name = rng.choice(NAMES)
    while name == taken:
        name = rng.choice(NAMES)
    return _Figure(asked=name, introduced=name, later=name)


def _creature(rng: random.Random, taken: str = "") -> _Figure:
    noun = rng.choice(_LIVING if rng.random() < 0.92 else NOUNS)
    if rng.random() < 0.06:
        noun = draw_invented_word(rng)
    while noun == taken:
        noun = rng.choice(_LIVING)
    trait = rng.choice(TRAITS)
    form = rng.random()
    if form < 0.45:
        asked = with_article(noun)
    elif form < 0.85:
        asked = with_article(f"{trait} {noun}")
    elif form < 0.93 or noun not in ANIMALS:
        asked = f"the {noun}"
    else:
        asked = plural(noun)
    return _Figure(asked, with_article(f"{trait} {noun}"), f"the {noun}")


def _named_creature(rng: random.Random) -> _Figure:
    noun, name = rng.choice(_LIVING), rng.choice(NAMES)
    trait = f"{rng.choice(TRAITS)} " if rng.random() < 0.4 else ""
    asked = f"{with_article(trait + noun)} {rng.choice(('named', 'called'))} {name}"
    return _Figure(asked, f"{with_article(trait + noun)} named {name}", name)


def draw_cast(rng: random.Random, has_topic: bool) -> Cast:
    """Draw a cast; with `has_topic`, also the words in which the question names a part of it."""
    hero = rng.choices((_person, _creature), (5, 6))[0](rng)
    friend = rng.choices((_person, _creature), (5, 4))[0](rng, hero.later.removeprefix("the "))
    thing, place = rng.choice(KEEPSAKES), rng.choice(PLACES)
    topic = None
    if has_topic:
        form = rng.random()
        if form < 0.50:
            topic = hero.asked
        elif form < 0.58:
            hero = _named_creature(rng)
            topic = hero.asked
        elif form < 0.68:
            topic = f"{hero.asked} and {friend.asked}"
        elif form < 0.82:
            thing = rng.choice(_THINGS)
            topic = f"{hero.asked} and {rng.choice((with_article(thing), 'the ' + thing))}"
        elif form < 0.92:
            thing = rng.choice(_THINGS) if rng.random() < 0.9 else draw_invented_word(rng)
            topic = rng.choice((with_article(thing), with_article(thing), f"the {thing}"))
        else:
            topic = f"{hero.asked} in the {place}"
    if friend.later == hero.later:
        friend = _person(rng, hero.later)
    return Cast(hero.later, hero.introduced, friend.later, friend.introduced, thing, place, topic)


def draw_request(rng: random.Random, topic: str | None, is_long: bool = False) -> str:
    """Draw how a user asks for a story, with full stop, case and politeness varied."""
    if topic is None:
        text = rng.choice(OPEN_REQUESTS)
    else:
        text = rng.choice(LONG_REQUESTS if is_long else TOPIC_REQUESTS).format(t=topic)
    form = rng.random()
    if form < 0.10:
        text = text.rstrip(".?")
    elif form < 0.16 and "lease" not in text:
        text = f"{text.rstrip('.?')}, please{text[-1] if text[-1] in '.?' else '.'}"
    elif form < 0.22 and "lease" not in text:
        text = f"Please {text[:1].lower()}{text[1:]}"
    elif form < 0.30:
        text = text[:1].lower() + text[1:].rstrip(".")
    elif form < 0.36:
        text = text.lower()
    return text
