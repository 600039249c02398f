"""Conversations whose answers stand in the system prompt: the name of the assistant, a fact on the
user, or a secret; it owns no rule for the form of answers.
"""

from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.items import draw_code, draw_invented_word
from builtin_recipe.skills.fact_forms import draw_person
from builtin_recipe.skills.plain_prompts import PLAIN
from builtin_recipe.skills.user_facts import FACTS
from builtin_recipe.wording import Draw
from builtin_recipe.wordings.persona_users import USER_TOLD
from builtin_recipe.wordings.personas import NAME_ASKED, NAMED, SECRET_ASKED, SECRET_TOLD
from builtin_recipe.words import NOUNS

_SECRETS: Final = (
    *("password", "secret word", "code", "secret code", "key", "access code", "secret number"),
    *("pin", "magic word"),
)


def _named_assistant(draw: Draw) -> tuple[str, Exchange]:
    name = draw_person(draw.rng)
    text = draw.pattern(NAMED).replace("{name}", name)
    return text, Exchange(draw.pattern(NAME_ASKED), f"My name is {name}.")


def _known_user(draw: Draw) -> tuple[str, Exchange]:
    key = draw.rng.choice(list(USER_TOLD))
    fact = FACTS[key]
    value = fact.draw_value(draw.rng)
    # A value that opens the sentence keeps its case, as the answer copies it.
    text = draw.pattern(USER_TOLD[key]).replace("{value}", value)
    return text, Exchange(draw.request(fact.asked), fact.answer.format(value=value))


def _known_secret(draw: Draw) -> tuple[str, Exchange]:
    rng = draw.rng
    thing = rng.choice(_SECRETS)
    pools = (draw_code(rng), rng.choice(NOUNS), draw_invented_word(rng))
    value = rng.choices(pools, (5, 3, 2))[0]
    if thing in ("pin", "secret number"):
        value = str(rng.randrange(100, 100000))
    text = draw.pattern(SECRET_TOLD).replace("{thing}", thing).replace("{value}", value)
    asked = draw.request(SECRET_ASKED).replace("{thing}", thing)
    return text, Exchange(asked, f"The {thing} is {value}.")


def persona_exchanges(draw: Draw) -> tuple[str, list[Exchange]]:
    """Return a system prompt that tells one to three things, and the questions for them."""
    rng = draw.rng
    makers = (_named_assistant, _known_user, _known_secret)
    told = [maker(draw) for maker in rng.sample(makers, rng.choices((1, 2, 3), (6, 3, 1))[0])]
    texts = [text for text, _ in told]
    if rng.random() < 0.35:
        texts.insert(rng.randint(0, len(texts)), draw.pattern(PLAIN))
    exchanges = [exchange for _, exchange in told]
    rng.shuffle(exchanges)
    return ("\n" if rng.random() < 0.1 else " ").join(texts), exchanges
