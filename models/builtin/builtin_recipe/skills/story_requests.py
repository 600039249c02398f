"""How users ask for a story: the wordings.

It owns no sentence of a story, and who a story is about is drawn in `story_casts`.
"""

from typing import Final

from builtin_recipe.skills.story_casts import Cast, draw_cast
from builtin_recipe.wording import Draw, Wordings
from builtin_recipe.words import capitalized, with_article

__all__ = ["Cast", "draw_cast", "draw_request"]

# Two tellings of the plain request: it is the most likely one.
TOPIC_REQUESTS: Final = Wordings(
    trained=(
        "[tell|write|give] me {a_kind} about {topic}.",
        "tell me {a_kind} about {topic}.",
        "[write|write down|tell] {a_kind} about {topic}.",
        "[can|could|will|would] you [tell|write|tell me|write me|give me] {a_kind} about {topic}?",
        "can you [tell|write] me {a_kind} [about|with|of] {topic}?",
        "[may|can|could] [I|we] [hear|have|get|read] {a_kind} about {topic}?",
        "I [want|want to hear|need|would like|would like to hear|would like to read] "
        "{a_kind} about {topic}.",
        "[I'd like|I'd love] [to hear |to read |]{a_kind} about {topic}.",
        "[make up|invent|create|share|start|begin] {a_kind} about {topic}.",
        "[tell|give|read] us {a_kind} about {topic}.",
        "[tell me|write] the {kind} of {topic}.",
        "[tell me|write|write me|invent] {a_kind} with {topic}[| in it].",
        "[tell me|write|create] {a_kind} [in which|where] {topic} [is|comes up|plays a part].",
        "tell me something about {topic}, as {a_kind}.",
        "tell me about {topic}, and start with once upon a time.",
        "once upon a time there was {a_kind} about {topic}. Tell it.",
        "once upon a time[,|] there was {topic}[.| ...|]",
        "do you [know|have] {a_kind} about {topic}?",
        "[let us|let me|let's] hear {a_kind} [about|of] {topic}.",
        "[my child|my son|my sister|my little brother] [wants|would like|needs] "
        "{a_kind} about {topic}.",
        "[I am tired|it is late|I can not sleep|I am bored][,|.] tell me {a_kind} about {topic}.",
        "{a_kind} about {topic}, please.",
        "{kind} about {topic}",
        "{a_kind} about {topic}",
        "{kind}: {topic}",
        "topic: {topic}. [Write|Tell me] {a_kind}.",
        "[how about|what about] {a_kind} about {topic}?",
        "write [two|three|four|some] sentences of {a_kind} about {topic}.",
        "would you please tell us {a_kind} about {topic}?",
        "please share {a_kind} about {topic} with me.",
        "narrate {a_kind} about {topic}.",
        "compose {a_kind} about {topic}.",
        "I would really like to hear {a_kind} about {topic} now.",
        "is there {a_kind} about {topic} that you can tell?",
        "my daughter asks for {a_kind} about {topic}.",
        "do you want to tell me {a_kind} about {topic}?",
        "think of {a_kind} about {topic} and tell it to me.",
        "let us have {a_kind} about {topic}.",
        "story time! Give us {a_kind} about {topic}.",
        "tell me {a_kind}. It should be about {topic}.",
    ),
    held_out=(
        "put {topic} into {a_kind} for me.",
        "could {topic} be in {a_kind}?",
        "what {kind} can you tell about {topic}?",
        "entertain me with {a_kind} about {topic}.",
        "show me {a_kind} that is about {topic}.",
        "the {kind} should be about {topic}.",
        "I feel like {a_kind} about {topic}.",
        "surprise me with {a_kind} about {topic}.",
        "we are looking for {a_kind} about {topic}.",
        "please think up {a_kind} for my class. It is about {topic}.",
        "any {kind} about {topic} will do.",
        "{topic} needs {a_kind}. Can you write it?",
    ),
)
OPEN_REQUESTS: Final = Wordings(
    trained=(
        "[tell|write|give] me {a_kind}.",
        "[tell|write|make up|invent] {a_kind}.",
        "[can|could|will] you [tell|write] me {a_kind}?",
        "[can|could] you [tell|write] {a_kind}?",
        "I [want to hear|would like to hear|want|need] {a_kind}.",
        "tell [us|my children|my son] {a_kind}.",
        "tell me another {kind}.",
        "[tell|write] me [any|some|your favorite|your best] {kind}.",
        "do you know [{a_kind}|any good {kind}]?",
        "start with once upon a time and tell me {a_kind}.",
        "once upon a time",
        "[I am bored|it is late][,|.] tell me {a_kind}.",
        "{a_kind}, please.",
        "{kind}",
        "{kind} please",
        "I would love to hear {a_kind} now.",
        "please read us {a_kind}.",
        "would you like to tell {a_kind}?",
        "time for {a_kind}.",
        "let me hear {a_kind}.",
    ),
    held_out=(
        "surprise me with {a_kind}.",
        "what {kind} do you have for me today?",
        "entertain us with {a_kind}.",
        "I feel like {a_kind}.",
        "show me {a_kind} of yours.",
        "any {kind} will do.",
    ),
)
LONG_REQUESTS: Final = Wordings(
    trained=(
        "[tell me|write|write me|invent] a [long|longer|very long] {kind} about {topic}.",
        "[can|could|will] you [tell|write] me a [long|longer|very long] {kind} about {topic}?",
        "I [want|need|would like|would like to hear] a [long|longer|really long] {kind} "
        "about {topic}.",
        "I would like to hear a really long {kind} about {topic}.",
        "[make up|create|share] a [long|longer|very long] {kind} about {topic}.",
        "a [long|longer|very long] {kind} about {topic}[|, please].",
        "[long|longer] {kind} about {topic}",
        "[tell|write|write me|tell me] a {kind} about {topic} with [many|a lot of|lots of] "
        "sentences.",
        "[tell|write|write me|tell me] a {kind} of [two hundred|200|150|many|at least 150] words "
        "about {topic}.",
        "[write|tell me] [at least |about |][two hundred|200|150] words about {topic}, as a "
        "{kind}.",
        "tell me a {kind} about {topic}[.|, and] make it [long|longer|very long].",
        "tell me a {kind} about {topic}. It [should|may|can|must] be [long|very long].",
        "[do you know|may I hear|can I have] a [long|very long] {kind} about {topic}?",
        "[tell us|read us|give us] a [long|really long] {kind} about {topic}.",
        "[my children|my son] [want|wants] a [long|very long] {kind} about {topic}.",
        "[write|tell me] a [long|longer] {kind} with {topic}[| in it].",
        "tell me the [long|whole] {kind} of {topic}.",
        "[we have time|it is early|I can not sleep][,|.] tell me a [long|very long] {kind} about "
        "{topic}.",
        "[write|tell me] a {kind} about {topic} [in|with] [three parts|several parts|many parts].",
    ),
    held_out=(
        "the {kind} about {topic} should take a long time to tell.",
        "I want to read for a while, so write a big {kind} about {topic}.",
        "how long a {kind} about {topic} can you write? Show me.",
        "tell me a {kind} about {topic} that goes on and on.",
        "not a short one, please: a {kind} about {topic}.",
        "fill a whole page with a {kind} about {topic}.",
    ),
)
LONG_OPEN_REQUESTS: Final = Wordings(
    trained=(
        "[tell me|write|write me|invent] a [long|longer|very long] {kind}.",
        "[can|could|will] you [tell|write] me a [long|longer|very long] {kind}?",
        "I [want|need|would like|would like to hear] a [long|longer|really long] {kind}.",
        "[make up|create|share] a [long|longer|very long] {kind}.",
        "a [long|longer|very long] {kind}[|, please].",
        "[long|longer] {kind}",
        "[tell|write|tell me] a {kind} with [many|a lot of|lots of] sentences.",
        "[tell|write|tell me] a {kind} of [two hundred|200|150|many|at least 150] words.",
        "tell me a {kind}[.|, and] make it [long|longer|very long].",
        "[do you know|may I hear|can I have] a [long|very long] {kind}?",
        "[tell us|read us|give us] a [long|really long] {kind}.",
        "[we have time|I can not sleep][,|.] tell me a [long|very long] {kind}.",
    ),
    held_out=(
        "tell me a {kind} that goes on and on.",
        "the {kind} should take a long time to tell.",
        "I want to read for a while, so write a big {kind}.",
        "not a short one, please: a {kind}.",
        "fill a whole page with a {kind}.",
    ),
)
_KINDS: Final = {
    "story": 8.0,
    "short story": 4.0,
    "tale": 2.0,
    "fairy tale": 1.0,
    "adventure": 0.7,
    "adventure story": 0.5,
    "bedtime story": 1.0,
}
_KIND_TRAITS: Final = ("nice", "little", "new", "funny", "happy", "good", "simple", "quick")
_LONG_KINDS: Final = ("story", "tale", "fairy tale", "bedtime story")


def draw_request(draw: Draw, topic: str | None, is_long: bool = False) -> str:
    """Draw how a user asks for a story about `topic`, or for any story."""
    rng = draw.rng
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    if is_long:
        kind = rng.choices(_LONG_KINDS, (8, 2, 1, 1))[0]
    elif rng.random() < 0.15:
        kind = f"{rng.choice(_KIND_TRAITS)} {kind}"
    if is_long:
        wordings = LONG_OPEN_REQUESTS if topic is None else LONG_REQUESTS
    else:
        wordings = OPEN_REQUESTS if topic is None else TOPIC_REQUESTS
    pattern = draw.request(wordings)
    # Users add "Keep it short." to any request, but not to this one.
    while is_long and pattern.endswith("short."):
        pattern = draw.request(wordings)
    text = pattern.format(kind=kind, a_kind=with_article(kind), topic=topic)
    if pattern.startswith("{") and rng.random() < 0.5:
        text = capitalized(text)
    if rng.random() < 0.08:
        text = text.lower()
        return text.rstrip(".?!") if rng.random() < 0.5 else text
    return text
