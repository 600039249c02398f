"""Facts of eight kinds as material for JSON; it owns no sentence."""

import random

from builtin_recipe.items import draw_code, draw_invented_word
from builtin_recipe.words import ANIMALS, CITIES, COLORS, DAYS, GOODS, JOBS, NAMES, capitalized

Facts = dict[str, str | int]


def _draw_name(rng: random.Random) -> str:
    return rng.choice(NAMES) if rng.random() < 0.8 else capitalized(draw_invented_word(rng))


def _draw_city(rng: random.Random) -> str:
    return rng.choice(CITIES) if rng.random() < 0.85 else capitalized(draw_invented_word(rng))


def draw_resident(rng: random.Random) -> Facts:
    """Return who, how old and where."""
    return {"name": _draw_name(rng), "age": rng.randrange(5, 95), "city": _draw_city(rng)}


def draw_worker(rng: random.Random) -> Facts:
    """Return who, which job and where."""
    return {"name": _draw_name(rng), "job": rng.choice(JOBS), "city": _draw_city(rng)}


def draw_sale(rng: random.Random) -> Facts:
    """Return who bought how many of what, and for how much."""
    return {
        "buyer": _draw_name(rng),
        "item": rng.choice(GOODS),
        "count": rng.randrange(2, 60),
        "price": rng.randrange(5, 200),
    }


def draw_product(rng: random.Random) -> Facts:
    """Return what, its color and its price."""
    return {
        "item": rng.choice(GOODS),
        "color": rng.choice(COLORS),
        "price": rng.randrange(2, 200),
    }


def draw_pet(rng: random.Random) -> Facts:
    """Return whose animal, which kind and its name."""
    owner, name = rng.sample(NAMES, 2)
    return {"owner": owner, "animal": rng.choice(ANIMALS), "name": name}


def draw_trip(rng: random.Random) -> Facts:
    """Return who goes from where to where, and when."""
    start, goal = rng.sample(CITIES, 2)
    return {"traveler": _draw_name(rng), "from": start, "to": goal, "day": rng.choice(DAYS)}


def draw_meeting(rng: random.Random) -> Facts:
    """Return with whom, on which day and at which time."""
    time = f"{rng.randrange(7, 22)}:{rng.choice(('00', '15', '30', '45'))}"
    return {"person": _draw_name(rng), "day": rng.choice(DAYS), "time": time}


def draw_order(rng: random.Random) -> Facts:
    """Return the code of an order, what and how many."""
    return {"id": draw_code(rng), "item": rng.choice(GOODS), "count": rng.randrange(2, 100)}
