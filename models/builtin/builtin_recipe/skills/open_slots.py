"""What fills the fields of an open question: known words, invented ones, names, topics, numbers;
it words no question.
"""

import random
from typing import Final

from builtin_recipe.items import draw_code, draw_invented_word
from builtin_recipe.words import (
    ANIMALS,
    CITIES,
    COLORS,
    COUNTRIES,
    FOODS,
    JOBS,
    LOOKS,
    MONTHS,
    NAMES,
    NOUNS,
    TRAITS,
    capitalized,
    plural,
    with_article,
)

_TOPICS: Final = (
    "gravity",
    "photosynthesis",
    "quantum physics",
    "quantum mechanics",
    "quantum computing",
    "relativity",
    "black holes",
    "the big bang",
    "evolution",
    "climate change",
    "global warming",
    "inflation",
    "democracy",
    "capitalism",
    "communism",
    "philosophy",
    "religion",
    "psychology",
    "chemistry",
    "biology",
    "algebra",
    "calculus",
    "geometry",
    "statistics",
    "astronomy",
    "economics",
    "politics",
    "medicine",
    "cancer",
    "diabetes",
    "a virus",
    "vaccines",
    "the human brain",
    "the heart",
    "DNA",
    "electricity",
    "magnetism",
    "nuclear energy",
    "solar power",
    "the internet",
    "blockchain",
    "bitcoin",
    "machine learning",
    "artificial intelligence",
    "neural networks",
    "a database",
    "recursion",
    "an operating system",
    "the stock market",
    "interest rates",
    "taxes",
    "insurance",
    "human rights",
    "the Roman Empire",
    "the French Revolution",
    "the Cold War",
    "the Second World War",
    "the Middle Ages",
    "ancient Egypt",
    "the moon landing",
    "the ice age",
    "dinosaurs",
    "volcanoes",
    "earthquakes",
    "football",
    "chess",
    "the Olympic Games",
    "yoga",
    "jazz music",
    "modern art",
    "Shakespeare",
    "poetry",
    "grammar",
    "love",
    "happiness",
    "friendship",
    "freedom",
    "time travel",
    "education",
    "history",
)
_FAMOUS_NAMES: Final = (
    "Albert Einstein",
    "Isaac Newton",
    "Marie Curie",
    "Napoleon",
    "Julius Caesar",
    "Cleopatra",
    "Mozart",
    "Beethoven",
    "Shakespeare",
    "Leonardo da Vinci",
    "Charles Darwin",
    "Galileo",
    "Plato",
    "Aristotle",
    "Gandhi",
    "Picasso",
    "Columbus",
    "Alan Turing",
    "Ada Lovelace",
    "George Washington",
)
_LANGUAGES: Final = (
    *("French", "German", "Spanish", "Italian", "Latin", "Greek", "Japanese", "Chinese"),
    *("Russian", "Polish", "Arabic", "Dutch", "Swedish", "Portuguese", "Hindi", "Korean"),
)
_PHRASES: Final = (
    '"good morning"',
    '"thank you"',
    '"I love you"',
    "hello",
    '"the red house"',
    "goodbye",
    '"where is the station?"',
    '"my friend"',
)
_NUMBER_WORDS: Final = (
    *("two", "three", "five", "seven", "nine", "ten", "twelve", "twenty", "forty", "ninety"),
    *("one hundred", "two thousand", "a million"),
)
_POOLS: Final = {
    "city": CITIES,
    "country": COUNTRIES,
    "color": COLORS,
    "animal": ANIMALS,
    "a_animal": tuple(with_article(animal) for animal in ANIMALS),
    "food": FOODS,
    "a_job": tuple(with_article(job) for job in JOBS),
    "month": MONTHS,
    "trait": TRAITS,
    "topic": _TOPICS,
    "language": _LANGUAGES,
    "phrase": _PHRASES,
    "things": tuple(plural(noun) for noun in NOUNS),
}


def filled(rng: random.Random, pattern: str) -> str:
    """Return `pattern` with a value for every field, each drawn anew."""
    opens_with_field = pattern.startswith("{")
    while "{" in pattern:
        start, end = pattern.index("{"), pattern.index("}")
        value = _field(rng, pattern[start + 1 : end])
        pattern = pattern[:start] + value + pattern[end + 1 :]
    return capitalized(pattern) if opens_with_field and rng.random() < 0.6 else pattern


def _field(rng: random.Random, name: str) -> str:
    match name:
        case "thing":
            return _thing(rng)
        case "a_thing":
            return with_article(_thing(rng))
        case "person":
            return _person(rng)
        case "place":
            is_known = rng.random() < 0.85
            return rng.choice(CITIES + COUNTRIES) if is_known else _invented_name(rng)
        case "number":
            top = rng.choice((20, 100, 1000, 100000))
            return rng.choice(_NUMBER_WORDS) if rng.random() < 0.3 else str(rng.randrange(2, top))
        case "year":
            return str(rng.randrange(1000, 2030))
        case "word":
            return draw_invented_word(rng) if rng.random() < 0.6 else draw_code(rng)
        case "topic":
            is_known = rng.random() < 0.85
            return rng.choice(_TOPICS) if is_known else f"{draw_invented_word(rng)} {_thing(rng)}"
        case _:
            return rng.choice(_POOLS[name])


def _invented_name(rng: random.Random) -> str:
    return capitalized(draw_invented_word(rng))


def _thing(rng: random.Random) -> str:
    """Return something to ask about, without an article: known, invented or of two words."""
    form = rng.random()
    if form < 0.55:
        return rng.choice(NOUNS)
    if form < 0.70:
        return f"{rng.choice(LOOKS + TRAITS + COLORS)} {rng.choice(NOUNS)}"
    if form < 0.80:
        return f"{rng.choice(NOUNS)} {rng.choice(NOUNS)}"
    return draw_invented_word(rng)


def _person(rng: random.Random) -> str:
    """Return a person: a first name, a full one, a famous one, or an invented one."""
    form = rng.random()
    if form < 0.3:
        return rng.choice(NAMES)
    if form < 0.5:
        return f"{rng.choice(NAMES)} {_invented_name(rng)}"
    return rng.choice(_FAMOUS_NAMES) if form < 0.8 else _invented_name(rng)
