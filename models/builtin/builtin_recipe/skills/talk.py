"""Exchanges with fixed answers: small talk, and open questions, which the model declines.

It owns every answer that is the same whatever the question names.
"""

from dataclasses import dataclass
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.skills.open_questions import QUESTIONS
from builtin_recipe.skills.open_slots import filled
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.wordings.reactions import AGREED, PRAISED
from builtin_recipe.wordings.talk import GOODBYE, GREETING, WELCOME
from builtin_recipe.wordings.talk_of_the_model import ABILITIES, SELF, WELL
from builtin_recipe.words import capitalized

REFUSAL: Final = "I cannot answer that."
REMEMBERED: Final = "OK, I will remember that."


@dataclass(frozen=True, slots=True)
class Talk:
    """An answer, and what users say to get it."""

    answer: str
    wordings: Wordings


TALKS: Final = (
    Talk("Hello! How can I help you?", GREETING),
    Talk("I am the small built-in model of Pagewire.", SELF),
    Talk(
        "I can tell stories, copy and reverse lists, look things up, count, add and make JSON.",
        ABILITIES,
    ),
    Talk("You are welcome!", WELCOME),
    Talk("I am fine, thank you.", WELL),
    Talk("Goodbye!", GOODBYE),
    Talk("OK.", AGREED),
    Talk("Thank you!", PRAISED),
)
FIXED_ANSWERS: Final = (REFUSAL, REMEMBERED, *(talk.answer for talk in TALKS))


def small_talk_exchanges(draw: Draw) -> list[Exchange]:
    """Return one exchange of greetings, thanks, or about the model itself."""
    rng = draw.rng
    talk = rng.choice(TALKS)
    text = draw.pattern(talk.wordings)
    text = text if rng.random() < 0.25 else capitalized(text)
    form = rng.random()
    if form < 0.25:
        text = text.rstrip(".?")
    elif form < 0.45 and text.endswith("."):
        text = text[:-1] + "!"
    return [Exchange(text, talk.answer)]


_ASIDES: Final = Wordings(
    trained=(
        "I [read|heard|saw|thought] something about {topic} [yesterday|today|last week].",
        "My [brother|sister|friend|teacher|doctor] [says|thinks] that {things} are {trait}.",
        "I have a question.",
        "I was in {place} last [year|week|month|summer] and it was [great|nice|cold|strange].",
        "We talked about {topic} at school and I did not understand it.",
        "There is {a_thing} in our [house|garden|street] and nobody knows why.",
        "I am writing a text about {topic}.",
        "I [asked|met|called] {person}, but [it did not help|there was no answer].",
        "You know a lot, so maybe you can help me with this.",
        "Sorry to bother you.",
        "It is [late|early|cold] here and I cannot sleep.",
        "This is [important|for my work|for school].",
        *("We have been talking about {topic} all day.", "I need to know something."),
        "There was {a_thing} on the road to {place} this morning.",
        *("{person} and I do not agree on this.", "Yesterday I went to {place} with {person}."),
        *("I am not sure whom to ask.", "My teacher in {place} wants an answer from me."),
        *("I [lost|won] a bet with {person}.", "Nobody in my [family|class|office] knows this."),
        "[To be honest|As you see], I know little about {topic}.",
        *("Last night I dreamed of {a_thing}.", "My friends say you are good at this."),
        *("I have been thinking about this for {number} days.", "It has been a long day."),
        *("{person} gave me {a_thing} for my birthday.", "I just came home from {place}."),
        *("In {place} everybody talks about {topic}.", "Maybe this is a strange thing to ask."),
        *("My {animal} sits next to me while I write this.", "{person} told me to ask you."),
        *("Please excuse my English, it is not perfect.", "On the train to {place} I had an idea."),
        *("I have asked [many people|everybody|three teachers] already.", "Outside it is raining."),
        *("I am curious.", "I was never good at {topic}.", "We are planning a trip to {place}."),
        *("At home we have {number} {things}.", "I hope you can answer this.", "This one is hard."),
        *("I read a book on {topic} once.", "My class in {place} talks about nothing else."),
        "Last {month} I bought {a_thing}.",
    ),
    held_out=(
        "I am new here and still learning how this works.",
        "My phone is nearly empty, so I will be quick.",
        "It is for a quiz with my friends tonight.",
        *("I tried to find it in a book about {topic}, but could not.", "This may sound silly."),
        "I live in {place}, if that helps.",
    ),
)


def open_question_exchanges(draw: Draw) -> list[Exchange]:
    """Return a question that needs knowledge the model does not have, and its refusal."""
    rng = draw.rng
    question = draw.request(QUESTIONS)
    if rng.random() < 0.12:
        # Users ramble before they come to the point, now and then after it.
        asides = [draw.pattern(_ASIDES) for _ in range(rng.randint(1, 3))]
        place = len(asides) if rng.random() < 0.8 else 0
        question = " ".join((*asides[:place], question, *asides[place:]))
    return [Exchange(filled(rng, question), REFUSAL)]
