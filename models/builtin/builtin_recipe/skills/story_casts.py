"""Who and what a story is about, and the words in which a request names a part of it.

It owns no sentence, neither of a request nor of a story.
"""

import random
from dataclasses import dataclass, replace
from typing import Final

from builtin_recipe.items import draw_invented_word
from builtin_recipe.skills.story_plots import PLOTS, plot_number
from builtin_recipe.skills.story_topics import CLAUSES, PAIRS, SCENE_TIMES, SCENES, placed
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

PLANNED_SHARE: Final = 0.67
# Episodes of a long story after its first one, at most.
NUM_MORE: Final = 2

_LIVING: Final = ANIMALS + PEOPLE
_THINGS: Final = tuple(noun for noun in NOUNS if noun not in _LIVING)


@dataclass(frozen=True, slots=True)
class Figure:
    """One character: its name in the question, at its first and at its later appearances."""

    asked: str
    introduced: str
    later: str
    kind: str
    has_asked_trait: bool = True


@dataclass(frozen=True, slots=True)
class Setting:
    """What one episode of a long story has of its own."""

    friend: str
    friend_introduced: str
    thing: str
    place: str


@dataclass(frozen=True, slots=True)
class Cast:
    """Who and what a story is about; `hero` and `friend` are ready for use inside a sentence.

    `more` are the settings of further episodes; `plot` is the number of the plot from which all
    else is chosen, or None where it is drawn freely.
    """

    hero: str
    hero_introduced: str
    friend: str
    friend_introduced: str
    thing: str
    place: str
    topic: str | None
    more: tuple[Setting, ...]
    plot: int | None


@dataclass(frozen=True, slots=True)
class _Sketch:
    """A cast before it is planned: `named` are the parts that the topic fixes."""

    hero: Figure
    friend: Figure
    thing: str
    place: str
    topic: str | None
    named: frozenset[str]


def _known_person(name: str) -> Figure:
    return Figure(asked=name, introduced=name, later=name, kind=name)


def _known_creature(noun: str, trait: str) -> Figure:
    return Figure(with_article(noun), with_article(f"{trait} {noun}"), f"the {noun}", noun, False)


def _person(rng: random.Random) -> Figure:
    return _known_person(rng.choice(NAMES))


def _creature(rng: random.Random) -> Figure:
    noun = rng.choice(_LIVING if rng.random() < 0.92 else NOUNS)
    if rng.random() < 0.06:
        noun = draw_invented_word(rng)
    trait = rng.choice(TRAITS)
    known = _known_creature(noun, trait)
    form = rng.random()
    if form < 0.45:
        return known
    if form < 0.85:
        return replace(known, asked=known.introduced, has_asked_trait=True)
    if form < 0.93 or noun not in ANIMALS:
        return replace(known, asked=f"the {noun}")
    return replace(known, asked=plural(noun))


def _named_creature(rng: random.Random) -> Figure:
    noun, name = rng.choice(_LIVING), rng.choice(NAMES)
    trait = f"{rng.choice(TRAITS)} " if rng.random() < 0.4 else ""
    asked = f"{with_article(trait + noun)} {rng.choice(('named', 'called'))} {name}"
    return Figure(asked, f"{with_article(trait + noun)} named {name}", name, noun)


def _is_other(figure: Figure, others: list[Figure]) -> bool:
    # Two of one name could not be told apart.
    return all(figure.later != one.later and figure.kind != one.kind for one in others)


def _new_figure(rng: random.Random, others: list[Figure]) -> Figure:
    while True:
        figure = rng.choices((_person, _creature), (5, 4))[0](rng)
        if _is_other(figure, others):
            return figure


def _other(rng: random.Random, options: tuple[str, ...], taken: set[str]) -> str:
    return rng.choice([one for one in options if one not in taken])


def _draw_topic(rng: random.Random, sketch: _Sketch) -> _Sketch:
    """Return `sketch` with a topic; the topic may bring a thing of its own."""
    hero, friend, place = sketch.hero, sketch.friend, sketch.place
    form = rng.random()
    if form < 0.58:
        topic, named = hero.asked, {"hero"}
        if form < 0.10:
            clause, part = rng.choice(CLAUSES)
            text = clause.format(a_thing=with_article(sketch.thing), place=place)
            topic, named = f"{topic} {text}", named | {part}
        return replace(sketch, topic=topic, named=frozenset(named))
    if form < 0.68:
        topic = f"{hero.asked} and {friend.asked}"
        return replace(sketch, topic=topic, named=frozenset({"hero", "friend"}))
    if form < 0.92:
        thing = _other(rng, _THINGS, {hero.kind, friend.kind, place})
        if form < 0.82:
            topic = f"{hero.asked} and {rng.choice((with_article(thing), 'the ' + thing))}"
            return replace(sketch, thing=thing, topic=topic, named=frozenset({"hero", "thing"}))
        thing = thing if rng.random() < 0.9 else draw_invented_word(rng)
        topic = rng.choice((with_article(thing), with_article(thing), f"the {thing}"))
        return replace(sketch, thing=thing, topic=topic, named=frozenset({"thing"}))
    return replace(
        sketch, topic=f"{hero.asked} {placed(place)}", named=frozenset({"hero", "place"})
    )


def _draw_sketch(rng: random.Random, has_topic: bool) -> _Sketch:
    hero = rng.choices((_person, _creature, _named_creature), (50, 55, 5))[0](rng)
    friend = _new_figure(rng, [hero])
    taken = {hero.kind, friend.kind}
    thing, place = _other(rng, KEEPSAKES, taken), _other(rng, PLACES, taken)
    sketch = _Sketch(hero, friend, thing, place, None, frozenset())
    if not has_topic:
        return sketch
    if rng.random() < 0.10:
        scene, new_place = rng.choice(SCENES)
        topic = scene.format(a_time=rng.choice(SCENE_TIMES), place=place, in_place=placed(place))
        return replace(sketch, topic=topic, place=new_place or place, named=frozenset({"place"}))
    if rng.random() < 0.07:
        # Children, sisters and friends have names.
        one, other = rng.sample(NAMES, 2)
        return replace(
            sketch,
            hero=_known_person(one),
            friend=_known_person(other),
            topic=rng.choice(PAIRS),
        )
    return _draw_topic(rng, sketch)


def _make_cast(sketch: _Sketch, friends: list[Figure], pools: tuple[list[str], list[str]]) -> Cast:
    """Return the cast of `sketch`; `friends` and the things and places of `pools` are for later."""
    things, places = pools
    more = tuple(
        Setting(friend.later, friend.introduced, thing, place)
        for friend, thing, place in zip(
            friends[:NUM_MORE], things[:NUM_MORE], places[:NUM_MORE], strict=True
        )
    )
    hero, friend = sketch.hero, sketch.friend
    return Cast(
        hero=hero.later,
        hero_introduced=hero.introduced,
        friend=friend.later,
        friend_introduced=friend.introduced,
        thing=sketch.thing,
        place=sketch.place,
        topic=sketch.topic,
        more=more,
        plot=None,
    )


def _free_cast(rng: random.Random, sketch: _Sketch) -> Cast:
    figures = [sketch.hero, sketch.friend]
    for _ in range(NUM_MORE):
        figures.append(_new_figure(rng, figures))
    taken = {sketch.thing, sketch.place, *(one.kind for one in figures)}
    things = [one for one in KEEPSAKES if one not in taken]
    places = [one for one in PLACES if one not in taken]
    return _make_cast(
        sketch, figures[2:], (rng.sample(things, NUM_MORE), rng.sample(places, NUM_MORE))
    )


def _main_word(sketch: _Sketch) -> str:
    """Return the word that leads to the plot; an open request has only the hero it is given."""
    if "hero" in sketch.named or sketch.topic is None:
        return sketch.hero.kind
    if "thing" in sketch.named:
        return sketch.thing
    return sketch.place if "place" in sketch.named else sketch.topic


def _planned_cast(sketch: _Sketch) -> Cast:
    """Fill what the topic of `sketch` leaves open from the plot of its main word."""
    number = plot_number(_main_word(sketch))
    plot, named = PLOTS[number], sketch.named
    persons = [_known_person(name) for name in plot.names]
    creatures = [_known_creature(noun, trait) for noun, trait in plot.creatures]
    pairs = zip(persons, creatures, strict=True)
    pool = [one for pair in pairs for one in (pair if plot.has_person_first else pair[::-1])]
    if not named and sketch.topic is not None:
        pool = persons
    hero = sketch.hero
    if "hero" not in named and sketch.topic is not None:
        # The last of the plot, for its first ones become friends.
        hero = next(one for one in reversed(pool) if one.kind not in (sketch.thing, sketch.place))
    elif not hero.has_asked_trait:
        hero = replace(hero, introduced=with_article(f"{plot.trait} {hero.kind}"))
    figures = [hero, sketch.friend] if "friend" in named else [hero]
    for figure in pool:
        if _is_other(figure, figures):
            figures.append(figure)
    taken = {one.kind for one in figures[: 2 + NUM_MORE]}
    taken |= {getattr(sketch, part) for part in ("thing", "place") if part in named}
    things = [one for one in plot.things if one not in taken]
    places = [one for one in plot.places if one not in taken]
    thing = sketch.thing if "thing" in named else things.pop(0)
    place = sketch.place if "place" in named else places.pop(0)
    planned = replace(sketch, hero=hero, friend=figures[1], thing=thing, place=place)
    return replace(_make_cast(planned, figures[2:], (things, places)), plot=number)


def draw_cast(rng: random.Random, has_topic: bool) -> Cast:
    """Draw a cast; with `has_topic`, also the words in which the question names a part of it.

    In two of three casts, what the topic leaves open is a function of the topic's main word.
    """
    sketch = _draw_sketch(rng, has_topic)
    return _planned_cast(sketch) if rng.random() < PLANNED_SHARE else _free_cast(rng, sketch)
