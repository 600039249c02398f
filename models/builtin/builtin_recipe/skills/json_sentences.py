"""The sentences that tell facts, as material for JSON; their patterns are imported."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from builtin_recipe.skills.json_facts import (
    Facts,
    draw_meeting,
    draw_order,
    draw_pet,
    draw_product,
    draw_resident,
    draw_sale,
    draw_trip,
    draw_worker,
)
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.wordings.json_persons import (
    MEETING_SENTENCES,
    RESIDENT_SENTENCES,
    TRIP_SENTENCES,
    WORKER_SENTENCES,
)
from builtin_recipe.wordings.json_things import (
    ORDER_SENTENCES,
    PET_SENTENCES,
    PRODUCT_SENTENCES,
    SALE_SENTENCES,
)
from builtin_recipe.words import capitalized, plural, with_article

_ASIDES: Final = (
    *("It was a sunny day.", "We know this from a letter.", "This is from the news."),
    *("Nobody was late.", "That is all.", "The weather was good."),
)


@dataclass(frozen=True, slots=True)
class _Form:
    """Facts of one kind: how they are drawn, and the sentences that tell all of them."""

    draw_facts: Callable[[random.Random], Facts]
    sentences: Wordings


_FORMS: Final = (
    _Form(draw_resident, RESIDENT_SENTENCES),
    _Form(draw_worker, WORKER_SENTENCES),
    _Form(draw_sale, SALE_SENTENCES),
    _Form(draw_product, PRODUCT_SENTENCES),
    _Form(draw_pet, PET_SENTENCES),
    _Form(draw_trip, TRIP_SENTENCES),
    _Form(draw_meeting, MEETING_SENTENCES),
    _Form(draw_order, ORDER_SENTENCES),
)


def _sentence(draw: Draw, form: _Form, facts: Facts) -> str:
    """Return one sentence that tells all `facts`, at times with a sentence beside it."""
    fields = {key: str(value) for key, value in facts.items()}
    fields |= {f"a_{key}": with_article(value) for key, value in fields.items()}
    if "item" in fields:
        fields["items"] = plural(fields["item"])
    pattern = draw.pattern(form.sentences)
    sentence = pattern.format(**fields)
    if not pattern.startswith("{id}"):
        sentence = capitalized(sentence)
    form_of_text = draw.rng.random()
    if form_of_text < 0.05:
        return f"{draw.rng.choice(_ASIDES)} {sentence}"
    if form_of_text < 0.10:
        return f"{sentence} {draw.rng.choice(_ASIDES)}"
    return sentence


def draw_told_facts(draw: Draw) -> tuple[str, Facts]:
    """Draw a sentence and the facts that it tells, by their usual key names in the usual order."""
    form = draw.rng.choice(_FORMS)
    facts = form.draw_facts(draw.rng)
    return _sentence(draw, form, facts), facts
