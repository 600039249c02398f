"""What builds the facts that users tell about themselves from common wordings; it lists no fact."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from builtin_recipe.items import draw_invented_word
from builtin_recipe.wording import Wordings
from builtin_recipe.wordings.facts import ASKED, BEARER_ASKED, BEARER_TOLD, TOLD
from builtin_recipe.wordings.favorites import LIKED_ASKED, LIKED_TOLD
from builtin_recipe.words import CITIES, NAMES, capitalized

_NONE: Final = Wordings((), ())


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact of the user; `{value}` stands for what differs from user to user.

    What is told is a clause without its full stop, so that several make one sentence.
    """

    told: Wordings
    asked: Wordings
    answer: str
    draw_value: Callable[[random.Random], str]


def draw_person(rng: random.Random) -> str:
    """Return a first name, one in five invented."""
    return rng.choice(NAMES) if rng.random() < 0.8 else capitalized(draw_invented_word(rng))


def draw_city(rng: random.Random) -> str:
    """Return a city, some invented."""
    return rng.choice(CITIES) if rng.random() < 0.85 else capitalized(draw_invented_word(rng))


def draw_number(rng: random.Random) -> str:
    """Return a number of one to three digits."""
    return str(rng.randrange(2, rng.choice((20, 100, 1000))))


def one_of(pool: tuple[str, ...]) -> Callable[[random.Random], str]:
    """Return a draw from `pool`."""
    return lambda rng: rng.choice(pool)


def _about(thing: str, *parts: Wordings) -> Wordings:
    """Return the patterns of all `parts` with `thing` filled in."""
    return Wordings(
        tuple(one.replace("{thing}", thing) for part in parts for one in part.trained),
        tuple(one.replace("{thing}", thing) for part in parts for one in part.held_out),
    )


def own(
    thing: str,
    draw_value: Callable[[random.Random], str],
    told: Wordings = _NONE,
    asked: Wordings = _NONE,
) -> Fact:
    """Return the fact of `thing`, told and asked for in the common ways and in its own."""
    return Fact(
        told=_about(thing, TOLD, told),
        asked=_about(thing, ASKED, asked),
        answer=f"Your {thing} is {{value}}.",
        draw_value=draw_value,
    )


def bearer(who: str) -> Fact:
    """Return the fact of the name of somebody who belongs to the user."""
    told, asked = _about(who, BEARER_TOLD), _about(who, BEARER_ASKED)
    return own(f"{who}'s name", draw_person, told, asked)


def liked(thing: str, pool: tuple[str, ...]) -> Fact:
    """Return the fact of the user's favorite of a kind."""
    told, asked = _about(thing, LIKED_TOLD), _about(thing, LIKED_ASKED)
    return own(f"favorite {thing}", one_of(pool), told, asked)
