"""Exchanges about sentences: JSON from a sentence, facts told earlier, small talk, and open
questions it declines.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_code, draw_invented_word
from builtin_recipe.words import (
    ANIMALS,
    CITIES,
    COLORS,
    COUNTRIES,
    GOODS,
    JOBS,
    NAMES,
    NOUNS,
    capitalized,
    plural,
    with_article,
)

REFUSAL: Final = "I cannot answer that."

_JSON: Final = (
    "Turn this sentence into JSON with the keys {keys}: {text}",
    "Extract JSON ({keys}): {text}",
    "Extract JSON with the keys {keys}: {text}",
    "{text}\nWrite that as a JSON object with keys {keys}.",
    "Make a JSON object with {keys} from: {text}",
    "Answer in JSON with the keys {keys}. {text}",
)
_PERSON_SENTENCES: Final = (
    "{name} is {age} years old and lives in {city}.",
    "{name}, aged {age}, lives in {city}.",
    "A person named {name} lives in {city} and is {age} years old.",
)
_JOB_SENTENCES: Final = (
    "{name} works as a {job} in {city}.",
    "In {city}, {name} is a {job}.",
    "The {job} {name} works in {city}.",
)
_SALE_SENTENCES: Final = (
    "{buyer} bought {count} {items} for {price} dollars.",
    "{buyer} paid {price} dollars for {count} {items}.",
)
_PRICE_SENTENCES: Final = (
    "The {item} is {color} and costs {price} dollars.",
    "A {color} {item} costs {price} dollars.",
)


def _json_facts(rng: random.Random) -> tuple[str, dict[str, str | int]]:
    name = rng.choice(NAMES) if rng.random() < 0.8 else capitalized(draw_invented_word(rng))
    city, number = rng.choice(CITIES), rng.randrange(5, 95)
    form = rng.randrange(4)
    facts: dict[str, str | int]
    if form == 0:
        facts = {"name": name, "age": number, "city": city}
        return rng.choice(_PERSON_SENTENCES).format(**facts), facts
    if form == 1:
        facts = {"name": name, "job": rng.choice(JOBS), "city": city}
        return rng.choice(_JOB_SENTENCES).format(**facts), facts
    item = rng.choice(GOODS)
    if form == 2:
        facts = {"buyer": name, "item": item, "count": rng.randrange(2, 60), "price": number}
        return rng.choice(_SALE_SENTENCES).format(items=plural(item), **facts), facts
    facts = {"item": item, "color": rng.choice(COLORS), "price": number}
    return rng.choice(_PRICE_SENTENCES).format(**facts), facts


def json_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return a sentence to turn into a JSON object with named keys."""
    del size  # sentences have one length
    text, facts = _json_facts(rng)
    question = rng.choice(_JSON).format(keys=", ".join(facts), text=text)
    return [Exchange(question, json.dumps(facts))]


@dataclass(frozen=True, slots=True)
class _Fact:
    told: str
    asked: str
    answer: str
    pool: tuple[str, ...]


_FACTS: Final = (
    _Fact("My name is {}.", "What is my name?", "Your name is {}.", NAMES),
    _Fact("I live in {}.", "Where do I live?", "You live in {}.", CITIES),
    _Fact(
        "My favorite color is {}.",
        "What is my favorite color?",
        "Your favorite color is {}.",
        COLORS,
    ),
    _Fact("I work as a {}.", "What is my job?", "You work as a {}.", JOBS),
    _Fact("I have a pet {}.", "What pet do I have?", "You have a pet {}.", ANIMALS),
    _Fact("My secret code is {}.", "What is my secret code?", "Your secret code is {}.", ()),
    _Fact(
        "I am {} years old.",
        "How old am I?",
        "You are {} years old.",
        tuple(str(age) for age in range(5, 95)),
    ),
)
_TOLD: Final = "OK, I will remember that."


def fact_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return one to three facts told by the user and, in another order, the questions for them."""
    del size
    told, asked = [], []
    for fact in rng.sample(_FACTS, rng.randint(1, 3)):
        value = rng.choice(fact.pool) if fact.pool else draw_code(rng)
        opening = rng.choice(("", "", "Hello. ", "Please remember: ", "Hi! "))
        told.append(Exchange(opening + fact.told.format(value), _TOLD))
        asked.append(Exchange(fact.asked, fact.answer.format(value)))
    rng.shuffle(asked)
    return told + asked


_GREETING: Final = "Hello! How can I help you?"
_SELF: Final = "I am the small built-in model of Pagewire."
_CAN: Final = (
    "I can tell stories, copy and reverse lists, look things up, count, add and make JSON."
)
_SMALL_TALK: Final = {
    "Hello!": _GREETING,
    "Hello": _GREETING,
    "Hello.": _GREETING,
    "Hi": _GREETING,
    "Hi!": _GREETING,
    "Hi there": _GREETING,
    "Hey": _GREETING,
    "Good morning!": _GREETING,
    "Who are you?": _SELF,
    "What are you?": _SELF,
    "What is your name?": _SELF,
    "What can you do?": _CAN,
    "How can you help me?": _CAN,
    "Help": _CAN,
    "Thank you!": "You are welcome!",
    "Thanks": "You are welcome!",
    "Thanks!": "You are welcome!",
    "How are you?": "I am fine, thank you.",
    "Goodbye": "Goodbye!",
    "Goodbye!": "Goodbye!",
    "Bye": "Goodbye!",
}

FIXED_ANSWERS: Final = (REFUSAL, _TOLD, *dict.fromkeys(_SMALL_TALK.values()))


def small_talk_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return one exchange of greetings or about the model itself."""
    del size
    question = rng.choice(list(_SMALL_TALK))
    return [Exchange(question, _SMALL_TALK[question])]


_OPEN_QUESTIONS: Final = (
    "What is the capital of {country}?",
    "How many people live in {city}?",
    "How far is it from {city} to {city}?",
    "Who is the president of {country}?",
    "What is the weather in {city}?",
    "What time is it in {city}?",
    "Who wrote the book about the {noun}?",
    "Why is the {noun} {color}?",
    "Why do we need {a_noun}?",
    "How do I make {a_noun}?",
    "How does {a_noun} work?",
    "How do I get to {city}?",
    "Where can I buy {a_noun}?",
    "What is the meaning of life?",
    "What is the best {noun}?",
    "What do you think about {country}?",
    "Explain how {a_noun} works.",
    "Explain {a_noun} to me.",
    "Give me advice about my {noun}.",
    "Write a poem about {a_noun}.",
    "Write a program that sorts numbers.",
    "Write an email to my boss.",
    "When was the {noun} invented?",
    "Who invented the {noun}?",
    "Is {city} bigger than {city}?",
    "Should I buy {a_noun} or {a_noun}?",
    "Tell me a joke.",
    "Tell me a joke about {a_noun}.",
    "Tell me a riddle.",
    "Tell me about {country}.",
    "Tell me the news.",
    "Write a letter to {city}.",
    "Write me a poem about the {noun}.",
    "Can you write a poem about {a_noun}?",
    "Can you tell me how {a_noun} works?",
    "I would like to buy {a_noun}.",
    "I want to learn about {country}.",
    "Translate {noun} into French.",
    "What happened in {country} last year?",
    "What should I eat today?",
    "What is the difference between {a_noun} and {a_noun}?",
)
_OPEN_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "{country}": COUNTRIES,
    "{city}": CITIES,
    "{color}": COLORS,
    "{noun}": NOUNS,
    "{a_noun}": tuple(with_article(noun) for noun in NOUNS),
}


def open_question_exchanges(rng: random.Random, size: float) -> list[Exchange]:
    """Return a question that needs knowledge the model does not have, and its refusal."""
    del size
    question = rng.choice(_OPEN_QUESTIONS)
    for field, pool in _OPEN_FIELDS.items():
        # One at a time: two cities in one question differ.
        while field in question:
            question = question.replace(field, rng.choice(pool), 1)
    return [Exchange(question, REFUSAL)]
