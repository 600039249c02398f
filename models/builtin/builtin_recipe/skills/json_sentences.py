"""The sentences that tell facts, as material for JSON; those about people are imported."""

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
from builtin_recipe.skills.json_person_sentences import (
    MEETING_SENTENCES,
    RESIDENT_SENTENCES,
    TRIP_SENTENCES,
    WORKER_SENTENCES,
)
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import capitalized, plural, with_article

_ASIDES: Final = (
    "It was a sunny day.",
    "We know this from a letter.",
    "This is from the news.",
    "Nobody was late.",
    "That is all.",
    "The weather was good.",
)
_SALE: Final = Wordings(
    trained=(
        "{buyer} [bought|buys] {count} {items} for {price} dollars.",
        "{buyer} paid {price} dollars for {count} {items}.",
        "{buyer} [got|took] {count} {items} for {price} dollars.",
        "for {price} dollars, {buyer} bought {count} {items}.",
        "{count} {items} were bought by {buyer} for {price} dollars.",
        "{buyer} went to the [shop|market] and bought {count} {items} for {price} dollars.",
        "{buyer} spent {price} dollars on {count} {items}.",
        "I sold {buyer} {count} {items} and got {price} dollars.",
        "they sold {count} {items} for {price} dollars to {buyer}.",
        "{count} {items} for {price} dollars went to {buyer}.",
        "the {count} {items} of {buyer} cost {price} dollars.",
        "{buyer} needed {count} {items} and paid {price} dollars.",
        "buyer: {buyer}, {count} {items}, {price} dollars.",
        "{price} dollars [was what|is what] {buyer} paid for {count} {items}.",
        "{buyer} [ordered|chose|wanted] {count} {items}, which cost {price} dollars.",
        "{price} dollars came from {buyer} for {count} {items}.",
        "{buyer} gave [us|me|them] {price} dollars and took {count} {items}.",
        "{count} {items} cost {buyer} {price} dollars.",
        "{buyer} bought {count} {items} and paid {price} dollars.",
        "we sold {count} {items} to {buyer} for {price} dollars.",
        "the bill [of|for] {buyer}: {count} {items}, {price} dollars.",
        "for {buyer}, we packed {count} {items} and [asked for|got] {price} dollars.",
        "{buyer} left the [shop|market] with {count} {items} and {price} dollars less.",
        "at the [shop|market], {count} {items} went for {price} dollars, and {buyer} took them.",
        "{count} {items}, please: {buyer} pays {price} dollars.",
        "[yesterday|today] {buyer} [picked up|brought home] {count} {items} for {price} dollars.",
        "{buyer} owes [me|us] {price} dollars for {count} {items}.",
        "who took the {count} {items} for {price} dollars? [It was|That was] {buyer}.",
        "{buyer}, {count} {items}, {price} dollars.",
    ),
    held_out=(
        "{buyer} purchased {count} {items} at a price of {price} dollars.",
        "the price was {price} dollars when {buyer} bought {count} {items}.",
        "the {count} {items} that {buyer} bought were {price} dollars.",
        "{buyer} now has {count} {items}, bought for {price} dollars.",
    ),
)
_PRODUCT: Final = Wordings(
    trained=(
        "the {item} is {color} and costs {price} dollars.",
        "{a_color} {item} costs {price} dollars.",
        "the {color} {item} [costs|is] {price} dollars.",
        "for {price} dollars you get {a_color} {item}.",
        "the price of the {color} {item} is {price} dollars.",
        "we sell {a_color} {item} for {price} dollars.",
        "the {item} costs {price} dollars and is {color}.",
        "I bought {a_color} {item} for {price} dollars.",
        "there is {a_color} {item} for {price} dollars.",
        "{price} dollars is the price of {a_color} {item}.",
        "[they|we] ask {price} dollars for {a_color} {item}.",
        "this {item} is {color}, and it costs {price} dollars.",
        "{a_color} {item} was sold for {price} dollars.",
        "in [the|our] shop, {a_color} {item} [is|sells for] {price} dollars.",
        "{color} is the color of the {item}, and {price} dollars is the price.",
        *("pay {price} dollars and take the {color} {item}.", "{item}, {color}, {price} dollars."),
        "you can buy {a_color} {item} for {price} dollars.",
        "the {item}, which is {color}, costs {price} dollars.",
        "they want {price} dollars for the {color} {item}.",
        "the {item} [comes|is sold|is made] in {color} for {price} dollars.",
        "one {item} in {color} [is yours|was gone|is offered] for {price} dollars.",
        "[I paid|she paid|we spent] {price} dollars [for|on] {a_color} {item}.",
        "how much is the {color} {item}? {price} dollars.",
        "[only|just] {price} dollars for {a_color} {item}!",
        "[look at|see] the {item}: it is {color} and [is worth|goes for] {price} dollars.",
        "with {price} dollars [she|he|we] took {a_color} {item} home.",
        "{a_color} {item} is worth {price} dollars.",
        "[new|now] in the shop: {item}, {color}, [for|at] {price} dollars.",
    ),
    held_out=(
        "the color of the {item} is {color} and the price is {price} dollars.",
        "I would like the {color} {item} for {price} dollars.",
        "it costs {price} dollars to buy {a_color} {item}.",
        "our {item} is {color} and has a price of {price} dollars.",
    ),
)
_PET: Final = Wordings(
    trained=(
        "{owner} has {a_animal} [named|called] {name}.",
        "the {animal} of {owner} is [named|called] {name}.",
        *("{name} is the {animal} of {owner}.", "{name}, {a_animal}, belongs to {owner}."),
        "{owner} owns {a_animal}. Its name is {name}.",
        "{owner} [bought|found] {a_animal} and [named|called] it {name}.",
        "{name} the {animal} lives with {owner}.",
        "{owner} is the owner of {a_animal} [named|called] {name}.",
        "{name} is {a_animal} and lives with {owner}.",
        "{owner} [loves|feeds] the {animal} {name}.",
        "the owner of the {animal} {name} is {owner}.",
        "{a_animal} called {name} belongs to {owner}.",
        "{owner} [keeps|got|feeds|walks] {a_animal}, and {name} is its name.",
        "a pet of {owner}, {name}, is {a_animal}.",
        "the {animal} [is called|is named] {name} and [is owned by|stays with] {owner}.",
        "with {owner} lives {a_animal}, [named|called] {name}.",
        "{owner} lives with {a_animal} named {name}.",
        "the name of the {animal} is {name}, and it belongs to {owner}.",
        "the {animal} {name} has an owner, {owner}.",
        "my name is {owner} and my {animal} is [called|named] {name}.",
        "[look|see], {owner} is [walking|feeding|washing] {name}, [his|her|the] {animal}.",
        "[there goes|here comes] {owner} with {name} the {animal}.",
        "{name}: {animal} of {owner}.",
        "[a friend|someone] brought {owner} {a_animal}, [now called|and the name is] {name}.",
        "{a_animal} [waits|sits|sleeps] at the home of {owner} and [hears|knows] the name {name}.",
        "at home {owner} takes care of {name}, {a_animal}.",
        "whose {animal} is {name}? [It is|That is] the {animal} of {owner}.",
        "owner: {owner}, animal: {animal}, name: {name}.",
    ),
    held_out=(
        "{owner} gave the {animal} the name {name}.",
        "there is {a_animal} at {owner}'s house, and its name is {name}.",
        "{owner} has {name}, {a_animal}, as a pet.",
        "I saw {owner} with {a_animal} called {name}.",
    ),
)
_ORDER: Final = Wordings(
    trained=(
        *("order {id}: {count} {items}.", "order {id} is for {count} {items}."),
        "the order {id} has {count} {items}.",
        "{count} {items} were ordered, the [code|order] is {id}.",
        "[please send|send] {count} {items} for order {id}.",
        "with the code {id}, {count} {items} were ordered.",
        "the order with the [code|number|id] {id} is for {count} {items}.",
        "we got {count} {items} with order {id}.",
        "{count} {items} are in the box with the code {id}.",
        *("order number {id}: {count} {items}.", "{id} is an order for {count} {items}."),
        "for order {id} we need {count} {items}.",
        "under [the code|number] {id}, we [sent|packed|have] {count} {items}.",
        "someone ordered {count} {items}[;|, and] the [order is|code is] {id}.",
        "{id}: {count} {items}.",
        "[pack|bring|prepare] {count} {items}, [order|the order is|as in order] {id}.",
        *("there are {count} {items} in order {id}.", "we sent {count} {items}, order {id}."),
        "order number {id} came with {count} {items}.",
        "the [box|bag] of order {id} [holds|contains] {count} {items}.",
        "[a customer|she|he] wants {count} {items}, [see|this is] order {id}.",
        "order {id} [came in|was made] today, for {count} {items}.",
        "the list says {id}, {count} {items}.",
        "[id|code|number]: {id}, [item|goods]: {count} {items}.",
        "what is in order {id}? {count} {items}.",
        "[we lost|we found|I see] {count} {items}, and the label [reads|is] {id}.",
        "{count} {items} [left|arrived] today [as|under] order {id}.",
        "[my|our|your] order {id} [should have|needs] {count} {items}.",
        "to [close|fill] order {id}, [add|find] {count} {items}.",
    ),
    held_out=(
        *(
            "in order {id} someone asked for {count} {items}.",
            "order {id} includes {count} {items}.",
        ),
        "the code of the order with {count} {items} is {id}.",
        "{count} {items} belong to order {id}.",
    ),
)


@dataclass(frozen=True, slots=True)
class _Form:
    """Facts of one kind: how they are drawn, and the sentences that tell all of them."""

    draw_facts: Callable[[random.Random], Facts]
    sentences: Wordings


_FORMS: Final = (
    _Form(draw_resident, RESIDENT_SENTENCES),
    _Form(draw_worker, WORKER_SENTENCES),
    _Form(draw_sale, _SALE),
    _Form(draw_product, _PRODUCT),
    _Form(draw_pet, _PET),
    _Form(draw_trip, TRIP_SENTENCES),
    _Form(draw_meeting, MEETING_SENTENCES),
    _Form(draw_order, _ORDER),
)


def _sentence(draw: Draw, form: _Form, facts: Facts) -> str:
    """Return one sentence that tells all `facts`, at times with a sentence beside it."""
    fields = {key: str(value) for key, value in facts.items()}
    fields |= {f"a_{key}": with_article(value) for key, value in fields.items()}
    if "item" in fields:
        fields["items"] = plural(fields["item"])
    sentence = capitalized(draw.pattern(form.sentences).format(**fields))
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
