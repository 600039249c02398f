"""Sentences to be copied: English ones from the word lists, and word salad so that copying does not
lean on grammar; it asks nothing.
"""

import random
from typing import Final

from builtin_recipe.items import draw_code, draw_invented_word
from builtin_recipe.words import (
    CITIES,
    COLORS,
    COMMON_WORDS,
    DAYS,
    JOBS,
    LOOKS,
    NAMES,
    NOUNS,
    PLACES,
    SMALL_WORDS,
    TRAITS,
    capitalized,
    plural,
    with_article,
)

_FRAMES: Final = (
    "the {trait} {noun} jumps over the {look} {other}",
    "{name} has {a_noun} and {number} {others}",
    "{name} went to {city} on {day} with {a_noun}",
    "there are {number} {others} in the {place}",
    "I saw {a_noun} near the {place} this morning",
    "the {noun} is {color} and the {other} is {look}",
    "we will meet {name} at the {place} on {day}",
    "please put the {noun} on the {other}",
    "{name} and {friend} like to walk through the {place}",
    "my {noun} was lost, but {name} found it",
    "every {day} the {job} reads a book about {others}",
    "it was a {trait} day and nobody was at the {place}",
    "do not forget the {noun}, the {other} and the {color} {third}",
    "the train to {city} leaves at {number}",
    "she gave me {number} {others} for the {noun}",
    "all that {name} wanted was {a_noun}",
    "to be or not to be, that is the question",
    "he said that the {job} from {city} was {trait}",
    "when the {noun} came home, the {other} was gone",
    "never open the {color} door of the {place}",
    "this {noun} costs {number} dollars",
    "where did you put the {look} {noun}",
    "what a {trait} {noun} you have",
    "how many {others} can {name} carry",
    "the quick {color} {noun} jumps over the lazy {other}",
    "{name} said hello to {friend} and went home",
    "hello world",
    "hello {name}, how are you today",
    "my name is {name} and I live in {city}",
    "the {job} wrote a letter to the {other} and waited for an answer",
    "we have to buy {number} {others} before {day}",
    "nobody knows why the {noun} is in the {place}",
    "it is {number} degrees in {city} and the sun is out",
    "{name}, {friend} and the {job} came late because of the {noun}",
    "all good things come to an end",
    "a journey of a thousand miles begins with one step",
    "this is only a test of the {noun}",
    "the answer to your question is {number}",
    "you can find the {noun} between the {other} and the {third}",
    "I think that {name} should take the {noun} to {city}",
    "thank you for the {trait} {noun}, it is just what I need",
    "when it rains, the {noun} stays in the {place}",
)


def _filled(rng: random.Random, frame: str) -> str:
    name, friend = rng.sample(NAMES, 2)
    noun, other, third = rng.sample(NOUNS, 3)
    return frame.format(
        trait=rng.choice(TRAITS),
        look=rng.choice(LOOKS),
        color=rng.choice(COLORS),
        noun=noun,
        a_noun=with_article(noun),
        other=other,
        others=plural(other),
        third=third,
        name=name,
        friend=friend,
        number=rng.randrange(2, 100),
        city=rng.choice(CITIES),
        day=rng.choice(DAYS),
        job=rng.choice(JOBS),
        place=rng.choice(PLACES),
    )


def _salad_word(rng: random.Random) -> str:
    form = rng.random()
    if form < 0.25:
        return rng.choice(SMALL_WORDS)
    if form < 0.55:
        return rng.choice(COMMON_WORDS)
    if form < 0.82:
        return rng.choice(NOUNS)
    if form < 0.88:
        return rng.choice(NAMES)
    if form < 0.94:
        return draw_invented_word(rng)
    return draw_code(rng) if form < 0.96 else str(rng.randrange(100))


def draw_sentence(rng: random.Random) -> str:
    """Return one sentence of 4 to 14 words, in two of three cases a grammatical one."""
    if rng.random() < 0.65:
        text = _filled(rng, rng.choice(_FRAMES))
    else:
        # Few sentences open with a noun, and a capital one is split into pieces by the tokenizer.
        words = [rng.choice(SMALL_WORDS), *(_salad_word(rng) for _ in range(rng.randint(3, 11)))]
        if rng.random() < 0.3:
            words[rng.randrange(len(words) - 1)] += ","
        text = " ".join(words)
    if rng.random() < 0.6:
        text = capitalized(text)
    return text + rng.choice((".", ".", "", "", "!", "?"))
