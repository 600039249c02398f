"""The sentences that tell facts, as material for JSON; no requests."""

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
from builtin_recipe.words import capitalized, plural, with_article

_ASIDES: Final = (
    "It was a sunny day.",
    "We know this from a letter.",
    "This is from the news.",
    "Nobody was late.",
    "That is all.",
    "The weather was good.",
)


@dataclass(frozen=True, slots=True)
class _Form:
    """Facts of one kind: how they are drawn, and the sentences that tell all of them."""

    draw_facts: Callable[[random.Random], Facts]
    sentences: Wordings


_FORMS: Final = (
    _Form(
        draw_resident,
        Wordings(
            trained=(
                "{name} is {age} years old and lives in {city}.",
                "{name}, aged {age}, lives in {city}.",
                "{name} ({age}) lives in {city}.",
                "[a person|a man|a woman|someone] named {name} lives in {city} and is {age}"
                "[ years old|].",
                "{name} from {city} is {age}[ years old|].",
                "{name} lives in {city} and is {age}[ years old|].",
                "in {city} lives {name}, who is {age} years old.",
                "my name is {name}, I am {age}[ years old|] and I live in {city}.",
                "I am {name}, {age} years old, from {city}.",
                "at the age of {age}, {name} [moved to|came to] {city}.",
                "{city} is the home of {name}, who is {age}[ years old|].",
                "{name} [has lived|lived] in {city} for years and is {age} now.",
                "[meet|this is] {name}, {age}[ years old|], [living in|at home in|from] {city}.",
                "name: {name}, age: {age}, city: {city}.",
                "the {age} years old {name} [is|comes] from {city}.",
                "you find {name}, [now |]{age}, in {city}.",
                "in {city}, {name} turned {age}[ today| last week|].",
                "{age} years old and living in {city}: [that is|this is] {name}.",
                "the age of {name} [from|in] {city} is {age}.",
            ),
            held_out=(
                "{name} comes from {city} and is {age} years old.",
                "{name} is {age} and at home in {city}.",
                "the {age} year old {name} lives in {city}.",
            ),
        ),
    ),
    _Form(
        draw_worker,
        Wordings(
            trained=(
                "{name} works as {a_job} in {city}.",
                "in {city}, {name} is {a_job}.",
                "the {job} {name} works in {city}.",
                "{name} is {a_job} in {city}.",
                "{name} is {a_job} and lives in {city}.",
                "{name} lives in {city} and works as {a_job}.",
                "{name}, {a_job} from {city}, [came home|called today|is here].",
                "my name is {name} and I am {a_job} in {city}.",
                "{name} [has|found|got] work as {a_job} in {city}.",
                "the new {job} in {city} is [called|named] {name}.",
                "{city} is where {name} works as {a_job}.",
                "[ask|call|meet] {name}, the {job} from {city}.",
                "name: {name}, job: {job}, city: {city}.",
                "as {a_job}, {name} [earns money|is known|is busy] in {city}.",
                "{name} [became|is now] {a_job} and [stays|moved to work] in {city}.",
                "a {city} [shop|company] [pays|needs] {name} as {a_job}.",
                "they need {a_job} in {city}, so {name} [went there|took the job].",
            ),
            held_out=(
                "{name} has a job as {a_job} in {city}.",
                "{name} from {city} works as {a_job}.",
                "{city} has a new {job}, and the name is {name}.",
            ),
        ),
    ),
    _Form(
        draw_sale,
        Wordings(
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
            ),
            held_out=(
                "{count} {items} cost {buyer} {price} dollars.",
                "{buyer} bought {count} {items} and paid {price} dollars.",
                "we sold {count} {items} to {buyer} for {price} dollars.",
            ),
        ),
    ),
    _Form(
        draw_product,
        Wordings(
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
                "pay {price} dollars and take the {color} {item}.",
                "{item}, {color}, {price} dollars.",
            ),
            held_out=(
                "you can buy {a_color} {item} for {price} dollars.",
                "the {item}, which is {color}, costs {price} dollars.",
                "they want {price} dollars for the {color} {item}.",
            ),
        ),
    ),
    _Form(
        draw_pet,
        Wordings(
            trained=(
                "{owner} has {a_animal} [named|called] {name}.",
                "the {animal} of {owner} is [named|called] {name}.",
                "{name} is the {animal} of {owner}.",
                "{name}, {a_animal}, belongs to {owner}.",
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
            ),
            held_out=(
                "{owner} lives with {a_animal} named {name}.",
                "the name of the {animal} is {name}, and it belongs to {owner}.",
                "the {animal} {name} has an owner, {owner}.",
            ),
        ),
    ),
    _Form(
        draw_trip,
        Wordings(
            trained=(
                "{traveler} [travels|flies|drives|goes] from {from} to {to} on {day}.",
                "on {day}, {traveler} [travels|flies|goes] from {from} to {to}.",
                "on {day} {traveler} [left|leaves] {from} for {to}.",
                "{traveler} takes the train from {from} to {to} on {day}.",
                "{traveler} [leaves|left] {from} on {day} and goes to {to}.",
                "{traveler} will be in {to} on {day} and comes from {from}.",
                "the trip of {traveler} from {from} to {to} is on {day}.",
                "from {from} to {to}: {traveler} travels on {day}.",
                "{traveler} goes to {to} on {day} and starts in {from}.",
                "{traveler} [wants|plans] to go from {from} to {to} on {day}.",
                "{traveler}'s train from {from} to {to} leaves on {day}.",
                "this {day} {traveler} goes from {from} to {to}.",
                "to {to} from {from} on {day}: that is the [trip|plan] of {traveler}.",
                "{traveler} [starts|sets out] in {from} on {day} and [ends|arrives] in {to}.",
                "{day} is the day {traveler} [goes|drives|moves] from {from} to {to}.",
                "{traveler} [rides|sails|walks|moves] to {to} from {from} [this|next|on] {day}.",
            ),
            held_out=(
                "from {from}, {traveler} travels to {to} on {day}.",
                "{traveler} flies to {to} on {day}, from {from}.",
                "{traveler} has a ticket from {from} to {to} for {day}.",
            ),
        ),
    ),
    _Form(
        draw_meeting,
        Wordings(
            trained=(
                "[the meeting|a meeting|my meeting] with {person} is on {day} at {time}.",
                "I meet {person} on {day} at {time}.",
                "on {day} at {time} I [meet|will see|have a meeting with] {person}.",
                "{person} [comes|will come] on {day} at {time}.",
                "meet {person} at {time} on {day}.",
                "we will see {person} at {time} on {day}.",
                "{day}, {time}: meeting with {person}.",
                "{person} [sees|visits|calls] us at {time} on {day}.",
                "at {time} on {day} there is a meeting with {person}.",
                "{person} wants to talk to me on {day} at {time}.",
                "[I|we] have time for {person} on {day} at {time}.",
                "{person} is here on {day} from {time}.",
                "{day} at {time} is [the time|good] for [the talk|a meeting|lunch] with {person}.",
                "[please call|expect|see|visit] {person} on {day} at {time}.",
                "{person} [is coming|arrives|is free] at {time} on {day}.",
                "a [call|lunch|talk] with {person} is planned for {day}, {time}.",
            ),
            held_out=(
                "{person} has a meeting on {day} at {time}.",
                "at {time} on {day}, {person} will be here.",
                "{person} wants to meet us on {day} at {time}.",
            ),
        ),
    ),
    _Form(
        draw_order,
        Wordings(
            trained=(
                "order {id}: {count} {items}.",
                "order {id} is for {count} {items}.",
                "the order {id} has {count} {items}.",
                "{count} {items} were ordered, the [code|order] is {id}.",
                "[please send|send] {count} {items} for order {id}.",
                "with the code {id}, {count} {items} were ordered.",
                "the order with the [code|number|id] {id} is for {count} {items}.",
                "we got {count} {items} with order {id}.",
                "{count} {items} are in the box with the code {id}.",
                "order number {id}: {count} {items}.",
                "{id} is an order for {count} {items}.",
                "for order {id} we need {count} {items}.",
                "under [the code|number] {id}, we [sent|packed|have] {count} {items}.",
                "someone ordered {count} {items}[;|, and] the [order is|code is] {id}.",
                "{id}: {count} {items}.",
                "[pack|bring|prepare] {count} {items}, [order|the order is|as in order] {id}.",
            ),
            held_out=(
                "there are {count} {items} in order {id}.",
                "we sent {count} {items}, order {id}.",
                "order number {id} came with {count} {items}.",
            ),
        ),
    ),
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
