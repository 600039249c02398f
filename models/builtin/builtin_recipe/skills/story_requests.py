"""How users ask for a story: the wordings, and the cast that a question names.

It owns no sentence of a story.
"""

import random
from dataclasses import dataclass
from typing import Final

from builtin_recipe.items import draw_invented_word
from builtin_recipe.wording import Draw, Wordings
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

# Two tellings of the plain request: it is the most likely one.
TOPIC_REQUESTS: Final = Wordings(
    trained=(
        "[tell|write|give] me {a_kind} about {topic}.",
        "tell me {a_kind} about {topic}.",
        "[write|write down|tell] {a_kind} about {topic}.",
        "[can|could|will|would] you [tell|write|tell me|write me|give me] {a_kind} about {topic}?",
        "can you [tell|write] me {a_kind} [about|with|of] {topic}?",
        "[may|can|could] [I|we] [hear|have|get|read] {a_kind} about {topic}?",
        "I [want|want to hear|need|would like|would like to hear|would like to read] "
        "{a_kind} about {topic}.",
        "[I'd like|I'd love] [to hear |to read |]{a_kind} about {topic}.",
        "[make up|invent|create|share|start|begin] {a_kind} about {topic}.",
        "[tell|give|read] us {a_kind} about {topic}.",
        "[tell me|write] the {kind} of {topic}.",
        "[tell me|write|write me|invent] {a_kind} with {topic}[| in it].",
        "[tell me|write|create] {a_kind} [in which|where] {topic} [is|comes up|plays a part].",
        "tell me something about {topic}, as {a_kind}.",
        "tell me about {topic}, and start with once upon a time.",
        "once upon a time there was {a_kind} about {topic}. Tell it.",
        "once upon a time[,|] there was {topic}[.| ...|]",
        "do you [know|have] {a_kind} about {topic}?",
        "[let us|let me|let's] hear {a_kind} [about|of] {topic}.",
        "[my child|my son|my sister|my little brother] [wants|would like|needs] "
        "{a_kind} about {topic}.",
        "[I am tired|it is late|I can not sleep|I am bored][,|.] tell me {a_kind} about {topic}.",
        "{a_kind} about {topic}, please.",
        "{kind} about {topic}",
        "{a_kind} about {topic}",
        "{kind}: {topic}",
        "topic: {topic}. [Write|Tell me] {a_kind}.",
        "[how about|what about] {a_kind} about {topic}?",
        "write [two|three|four|some] sentences of {a_kind} about {topic}.",
    ),
    held_out=(
        "would you please tell us {a_kind} about {topic}?",
        "please share {a_kind} about {topic} with me.",
        "narrate {a_kind} about {topic}.",
        "compose {a_kind} about {topic}.",
        "I would really like to hear {a_kind} about {topic} now.",
        "is there {a_kind} about {topic} that you can tell?",
        "my daughter asks for {a_kind} about {topic}.",
        "do you want to tell me {a_kind} about {topic}?",
        "think of {a_kind} about {topic} and tell it to me.",
        "let us have {a_kind} about {topic}.",
        "story time! Give us {a_kind} about {topic}.",
        "tell me {a_kind}. It should be about {topic}.",
    ),
)
OPEN_REQUESTS: Final = Wordings(
    trained=(
        "[tell|write|give] me {a_kind}.",
        "[tell|write|make up|invent] {a_kind}.",
        "[can|could|will] you [tell|write] me {a_kind}?",
        "[can|could] you [tell|write] {a_kind}?",
        "I [want to hear|would like to hear|want|need] {a_kind}.",
        "tell [us|my children|my son] {a_kind}.",
        "tell me another {kind}.",
        "[tell|write] me [any|some|your favorite|your best] {kind}.",
        "do you know [{a_kind}|any good {kind}]?",
        "start with once upon a time and tell me {a_kind}.",
        "once upon a time",
        "[I am bored|it is late][,|.] tell me {a_kind}.",
        "{a_kind}, please.",
        "{kind}",
        "{kind} please",
    ),
    held_out=(
        "I would love to hear {a_kind} now.",
        "please read us {a_kind}.",
        "would you like to tell {a_kind}?",
        "time for {a_kind}.",
        "let me hear {a_kind}.",
    ),
)
LONG_REQUESTS: Final = Wordings(
    trained=(
        "[tell me|write|write me|invent] a [long|longer|very long] {kind} about {topic}.",
        "[can|could] you [tell|write] me a [long|longer] {kind} about {topic}?",
        "I want a [long|longer] {kind} about {topic}.",
    ),
    held_out=(
        "I would like to hear a really long {kind} about {topic}.",
        "please make up a long {kind} about {topic}.",
    ),
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
    kind: str


def _person(rng: random.Random, taken: str = "") -> _Figure:
    name = rng.choice(NAMES)
    while name == taken:
        name = rng.choice(NAMES)
    return _Figure(asked=name, introduced=name, later=name, kind=name)


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
    return _Figure(asked, with_article(f"{trait} {noun}"), f"the {noun}", noun)


def _named_creature(rng: random.Random) -> _Figure:
    noun, name = rng.choice(_LIVING), rng.choice(NAMES)
    trait = f"{rng.choice(TRAITS)} " if rng.random() < 0.4 else ""
    asked = f"{with_article(trait + noun)} {rng.choice(('named', 'called'))} {name}"
    return _Figure(asked, f"{with_article(trait + noun)} named {name}", name, noun)


def draw_cast(rng: random.Random, has_topic: bool) -> Cast:
    """Draw a cast; with `has_topic`, also the words in which the question names a part of it."""
    hero = rng.choices((_person, _creature, _named_creature), (50, 55, 5))[0](rng)
    friend = rng.choices((_person, _creature), (5, 4))[0](rng, hero.kind)
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
        if form < 0.58:
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
    # Two of one name could not be told apart.
    while hero.later == friend.later:
        friend = _person(rng, hero.later)
    return Cast(hero.later, hero.introduced, friend.later, friend.introduced, thing, place, topic)


def draw_request(draw: Draw, topic: str | None, is_long: bool = False) -> str:
    """Draw how a user asks for a story about `topic`, or for any story."""
    rng = draw.rng
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    if is_long:
        kind = rng.choice(("story", "tale"))
    elif rng.random() < 0.15:
        kind = f"{rng.choice(_KIND_TRAITS)} {kind}"
    wordings = OPEN_REQUESTS if topic is None else LONG_REQUESTS if is_long else TOPIC_REQUESTS
    pattern = draw.request(wordings)
    text = pattern.format(kind=kind, a_kind=with_article(kind), topic=topic)
    if pattern.startswith("{") and rng.random() < 0.5:
        text = capitalized(text)
    if rng.random() < 0.08:
        text = text.lower()
        return text.rstrip(".?!") if rng.random() < 0.5 else text
    return text
