"""Exchanges with fixed answers: small talk, and open questions, which the model declines.

It owns every answer that is the same whatever the question names.
"""

from dataclasses import dataclass
from typing import Final

from builtin_recipe.conversation import Exchange
from builtin_recipe.skills.open_questions import QUESTIONS
from builtin_recipe.skills.open_slots import filled
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import capitalized

REFUSAL: Final = "I cannot answer that."
REMEMBERED: Final = "OK, I will remember that."


@dataclass(frozen=True, slots=True)
class _Talk:
    answer: str
    wordings: Wordings


_GREETING: Final = _Talk(
    "Hello! How can I help you?",
    Wordings(
        trained=(
            "hello[| there| again| you| everyone| my friend| model| assistant].",
            "hi[| there| again| you| everyone| friend].",
            "hey[| there| you| again].",
            "good [morning|evening|day|afternoon][| to you| my friend].",
            "hello hello.",
            "hi hi.",
            "hello, [are you there|can you hear me|is anyone there]?",
            "hi, [it is me|I am back|I am here].",
            "[hello|hi], nice to meet you.",
            "greetings.",
            *("hello, hello, is anybody home?", "hi, I am new here.", "good to see you."),
            *("hey hey.", "welcome back."),
        ),
        held_out=(
            "hey friend.",
            "hello to you.",
            "hi, good morning.",
            "hello, good evening.",
            "hey hello.",
            "hi, nice to see you.",
            "greetings, my friend.",
        ),
    ),
)
_SELF: Final = _Talk(
    "I am the small built-in model of Pagewire.",
    Wordings(
        trained=(
            "[|hello, |hi, |hey, ][who|what] are you?",
            "[who|what] are you[ really| exactly|, please]?",
            "what is your name[|, please]?",
            "what are you called?",
            "do you have a name?",
            "tell me your name.",
            "tell me who you are.",
            "introduce yourself.",
            "are you [a robot|a human|a person|a machine|a computer|a program|an AI|real]?",
            "are you [a model|a chatbot|an assistant|ChatGPT|Claude|Qwen]?",
            "which model are you?",
            "what model is this?",
            "who am I talking to?",
            "tell me about yourself.",
            "what kind of [model|robot|machine|assistant] are you?",
            "who is this?",
            "what should I call you?",
            *("what sort of program are you?", "do you go by a name?", "who is there?"),
            *("who is talking to me?", "describe yourself."),
        ),
        held_out=(
            "may I ask who you are?",
            "say who you are.",
            "can you introduce yourself?",
            "what do people call you?",
            "am I talking to a [robot|human|machine]?",
            "is this a [robot|machine|model]?",
            "tell me what you are.",
            "can you tell me your name?",
        ),
    ),
)
_ABILITIES: Final = _Talk(
    "I can tell stories, copy and reverse lists, look things up, count, add and make JSON.",
    Wordings(
        trained=(
            "[|hello, |hi, ]what can you do[| for me|, please| here| exactly]?",
            "how can you help[| me]?",
            "what [are you able to|do you] do?",
            "what are you good at?",
            "what can I ask[| you]?",
            "what can I do [here|with you]?",
            "what do you know how to do?",
            "what are your [skills|abilities]?",
            "help.",
            "[help me|I need help|can you help me][|, please].",
            "list your skills.",
            "tell me what you can do.",
            "how do I use you?",
            "show me what you can do.",
            *("what tasks can you do?", "what else can you do?", "how do you work for me?"),
            *("give me a list of your skills.", "what are you made for?"),
        ),
        held_out=(
            "what are you able to do for me?",
            "what skills do you have?",
            "which things can you do?",
            "what can you help me with?",
            "please help me.",
            "tell me your skills.",
            "what may I ask you?",
        ),
    ),
)
_WELCOME: Final = _Talk(
    "You are welcome!",
    Wordings(
        trained=(
            "thank you[| very much| so much| again|, model|, my friend| for your help| for that].",
            "thanks[| a lot| again| so much| for your help| for that|, my friend].",
            "[great|good|perfect|ok|nice], [thanks|thank you].",
            "many thanks.",
            "that was helpful, [thanks|thank you].",
            "I thank you.",
            *("thanks and thanks again.", "a big thank you.", "thank you, that is all I need."),
            *("I want to thank you.", "thanks, you helped me."),
        ),
        held_out=(
            "thank you a lot.",
            "thanks, that was great.",
            "oh, thank you.",
            "thanks very much.",
            "many thanks to you.",
            "[wonderful|very good], thank you.",
        ),
    ),
)
_WELL: Final = _Talk(
    "I am fine, thank you.",
    Wordings(
        trained=(
            "[|hello, |hi, |hey, ]how are you[| today| doing| now| this morning]?",
            "how are you [doing|feeling] today?",
            "how do you feel[| today]?",
            "how is it going?",
            "how are things?",
            "are you [well|fine|ok|good|all right]?",
            "what is up?",
            "how is your day?",
            *("how have you been?", "is everything all right with you?", "how goes it?"),
            *("are you doing well?", "how was your day?"),
        ),
        held_out=(
            "good morning, how are you?",
            "are you feeling well?",
            "how are you, my friend?",
            "and how are you?",
            "how do you do?",
            "how are things today?",
        ),
    ),
)
_GOODBYE: Final = _Talk(
    "Goodbye!",
    Wordings(
        trained=(
            "goodbye[| for now| my friend].",
            "bye[| bye| for now| then].",
            "good night.",
            "see you[| later| soon| tomorrow].",
            "[thanks|thank you|ok], [bye|goodbye].",
            "I have to go[| now].",
            "[I am leaving|I must go] now[|, bye].",
            "that is all, [bye|goodbye].",
            *("have a good [day|night|evening].", "until [tomorrow|next time].", "farewell."),
            *("time to go, bye.", "I am going home now, goodbye."),
        ),
        held_out=(
            "bye, see you.",
            "goodbye and good night.",
            "ok, see you later.",
            "I must go, goodbye.",
            "bye, my friend.",
            "well, goodbye.",
        ),
    ),
)
_AGREED: Final = _Talk(
    "OK.",
    Wordings(
        trained=(
            "ok[| then| good].",
            "[yes|no][|, please| of course|, not now].",
            "[sure|fine|right|all right|good|great|nice|perfect|I see|I understand|well].",
            "[ok|yes|good], [fine|I see|I understand|great].",
            "that is [fine|good|right|ok|great].",
            "never mind.",
            "sounds good.",
            "no problem.",
            *("yes, that is right.", "that works[| for me].", "okay.", "as you like."),
            *("no, that is all.", "very well."),
        ),
        held_out=(
            "ok, that is good.",
            "yes, sure.",
            "no, never mind.",
            "all right then.",
            "fine, I see.",
            "great, that is right.",
        ),
    ),
)
_PRAISED: Final = _Talk(
    "Thank you!",
    Wordings(
        trained=(
            "you are [great|good|nice|smart|clever|kind|funny|helpful|the best|very good].",
            "[well done|good job|good work|nice work|great job].",
            "I like [you|talking to you|your answers|your stories].",
            "I love [you|your stories|this model].",
            "that was [great|very good|perfect|a good answer|a nice story].",
            "you did [well|a good job].",
            "what a [good|nice|smart] [model|answer|story].",
            *("[excellent|amazing|wonderful|impressive].", "this is great work.", "bravo."),
            *("you answered very well.", "you make me happy."),
        ),
        held_out=(
            "you are a [good|great|nice] model.",
            "that is a very good answer.",
            "you do great work.",
            "I really like you.",
            "your answer was perfect.",
            "you are so [smart|kind|clever].",
        ),
    ),
)
_TALKS: Final = (_GREETING, _SELF, _ABILITIES, _WELCOME, _WELL, _GOODBYE, _AGREED, _PRAISED)

FIXED_ANSWERS: Final = (REFUSAL, REMEMBERED, *(talk.answer for talk in _TALKS))


def small_talk_exchanges(draw: Draw) -> list[Exchange]:
    """Return one exchange of greetings, thanks, or about the model itself."""
    rng = draw.rng
    talk = rng.choice(_TALKS)
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
    ),
    held_out=(
        "We have been talking about {topic} all day.",
        "I need to know something.",
        "There was {a_thing} on the road to {place} this morning.",
        "{person} and I do not agree on this.",
        "Yesterday I went to {place} with {person}.",
        "I am not sure whom to ask.",
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
