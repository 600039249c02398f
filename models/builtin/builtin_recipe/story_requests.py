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
    capitalized,
    plural,
    with_article,
)

_LIVING: Final = ANIMALS + PEOPLE
_THINGS: Final = tuple(noun for noun in NOUNS if noun not in _LIVING)

# {k} is what is asked for ("story", "short fairy tale"), {a} the same behind its article, {t} what
# it is to be about. Two tellings of the plain request: it is the most likely one.
TOPIC_REQUESTS: Final = (
    "Tell me {a} about {t}.",
    "Tell me {a} about {t}.",
    "Write {a} about {t}.",
    "Write {a} about {t}.",
    "Write me {a} about {t}.",
    "Write down {a} about {t}.",
    "Can you tell me {a} about {t}?",
    "Can you tell {a} about {t}?",
    "Can you write {a} about {t}?",
    "Could you tell me {a} about {t}?",
    "Could you write {a} about {t}?",
    "Will you tell me {a} about {t}?",
    "Would you write me {a} about {t}?",
    "May I hear {a} about {t}?",
    "I want to hear {a} about {t}.",
    "I want {a} about {t}.",
    "I need {a} about {t}.",
    "I would like {a} about {t}.",
    "I would like to read {a} about {t}.",
    "I'd love to hear {a} about {t}.",
    "Please tell me {a} about {t}.",
    "Please write {a} about {t}.",
    "Make up {a} about {t}.",
    "Invent {a} about {t}.",
    "Create {a} about {t}.",
    "Give me {a} about {t}.",
    "Tell {a} about {t}.",
    "Tell us {a} about {t}.",
    "Tell me the {k} of {t}.",
    "Tell me {a} with {t} in it.",
    "Write {a} with {t}.",
    "Tell me something about {t}, as {a}.",
    "Tell me about {t}, and start with once upon a time.",
    "Once upon a time there was {a} about {t}. Tell it.",
    "Do you know {a} about {t}?",
    "Do you have {a} about {t}?",
    "Let us hear {a} about {t}.",
    "Hello! Tell me {a} about {t}.",
    "Hi, can you tell me {a} about {t}?",
    "My child wants {a} about {t}.",
    "{a} about {t}, please.",
    "{k} about {t}",
    "{a} about {t}",
)
OPEN_REQUESTS: Final = (
    "Tell me {a}.",
    "Tell me {a}.",
    "Write {a}.",
    "Write me {a}.",
    "Can you tell me {a}?",
    "Can you write {a}?",
    "Could you tell me {a}?",
    "Please tell me {a}.",
    "Please write {a}.",
    "I want to hear {a}.",
    "I would like to hear {a}.",
    "Make up {a}.",
    "Give me {a}.",
    "Tell us {a}.",
    "Tell me another {k}.",
    "Tell my children {a}.",
    "Do you know {a}?",
    "Do you know any good {k}?",
    "Start with once upon a time and tell me {a}.",
    "Once upon a time",
    "{a}, please.",
    "{k}",
)
LONG_REQUESTS: Final = (
    "Tell me a long story about {t}.",
    "Write a long story about {t}.",
    "Please write a longer story about {t}.",
)
_KINDS: Final = {
    "story": 8.0,
    "short story": 4.0,
    "tale": 2.0,
    "fairy tale": 1.0,
    "adventure": 0.7,
    "adventure story": 0.5,
    "bedtime story": 1.0,
}
_KIND_TRAITS: Final = ("nice", "little", "new", "funny", "happy", "good", "simple", "quick")
# Topics that name no figure; each with the place where the story is then set.
_SCENES: Final = (
    ("{a_time} at the {place}", None),
    ("{a_time} in the {place}", None),
    ("a trip to the {place}", None),
    ("a walk to the {place}", None),
    ("the {place}", None),
    ("a small {place} far away", None),
    ("{a_time} at the sea", "beach"),
    ("the sea", "beach"),
    ("a trip to the sea", "beach"),
)
_SCENE_TIMES: Final = ("a day", "a day", "one day", "a night", "a summer", "a rainy day")
_PAIRS: Final = (
    "two friends",
    "two good friends",
    "best friends",
    "friends",
    "two children",
    "two brothers",
    "two sisters",
    "a family",
    "friendship",
)
_CLAUSES: Final = (
    "who was afraid",
    "who wants to go home",
    "who is lost",
    "who finds {a_thing}",
    "who lost {a_thing}",
    "and a friend",
    "and friends",
    "near the {place}",
    "at the {place}",
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
    if has_topic and rng.random() < 0.10:
        scene, new_place = rng.choice(_SCENES)
        topic = scene.format(a_time=rng.choice(_SCENE_TIMES), place=place)
        place = new_place or place
    elif has_topic and rng.random() < 0.07:
        topic = rng.choice(_PAIRS)
    elif has_topic:
        form = rng.random()
        if form < 0.48:
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
        if form < 0.10:
            clause = rng.choice(_CLAUSES)
            topic += " " + clause.format(a_thing=with_article(thing), place=place)
    if friend.later == hero.later:
        friend = _person(rng, hero.later)
    return Cast(hero.later, hero.introduced, friend.later, friend.introduced, thing, place, topic)


def draw_request(rng: random.Random, topic: str | None, is_long: bool = False) -> str:
    """Draw how a user asks for a story, with full stop, case and politeness varied."""
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    if rng.random() < 0.15:
        kind = f"{rng.choice(_KIND_TRAITS)} {kind}"
    pool = OPEN_REQUESTS if topic is None else LONG_REQUESTS if is_long else TOPIC_REQUESTS
    text = capitalized(rng.choice(pool).format(k=kind, a=with_article(kind), t=topic))
    form = rng.random()
    if form < 0.10:
        text = text.rstrip(".?")
    elif form < 0.16 and "lease" not in text:
        text = f"{text.rstrip('.?')}, please{text[-1] if text[-1] in '.?' else '.'}"
    elif form < 0.22 and "lease" not in text:
        text = f"Please {text[:1].lower()}{text[1:]}"
    elif form < 0.30:
        text = text[:1].lower() + text[1:].rstrip(".")
    elif form < 0.38:
        text = text.lower()
    elif form < 0.40:
        text = text.rstrip(".?") + "!"
    return text
