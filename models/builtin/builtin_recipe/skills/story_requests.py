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
        *("put {topic} into {a_kind} for me.", "could {topic} be in {a_kind}?"),
        *("what {kind} can you tell about {topic}?", "entertain me with {a_kind} about {topic}."),
        *("show me {a_kind} that is about {topic}.", "the {kind} should be about {topic}."),
        *("I feel like {a_kind} about {topic}.", "surprise me with {a_kind} about {topic}."),
        *("we are looking for {a_kind} about {topic}.", "any {kind} about {topic} will do."),
        "please think up {a_kind} for my class. It is about {topic}.",
        "{topic} needs {a_kind}. Can you write it?",
        "I am looking for {a_kind} in which we meet {topic}.",
        *("if you have time, tell {a_kind} about {topic}.", "your next {kind} is about {topic}."),
        "my class is reading about {topic}. Write us {a_kind}.",
        "[it would be nice|I would be happy] to get {a_kind} about {topic}.",
        *("before we sleep, {a_kind} about {topic}, please.", "let {topic} be part of {a_kind}."),
        "we all want {a_kind} about {topic}. Start now.",
    ),
    held_out=(
        "could you think up {a_kind} that has {topic} in it?",
        "{a_kind} where {topic} is the main character.",
        "my daughter cannot sleep without {a_kind}, today about {topic}.",
        *("make up {a_kind} about {topic} for me.", "I need {a_kind} for my kids, about {topic}."),
        "let's have {a_kind} today, and let it be about {topic}.",
        "can I get {a_kind} featuring {topic}?",
        "how about {a_kind} in which {topic} is the hero?",
        "I am in the mood for {a_kind}, one about {topic}.",
        "write me something to read: {a_kind} about {topic}.",
        "we just talked about {topic}. Now tell us {a_kind} about that.",
        "what would {a_kind} about {topic} sound like?",
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
        *("surprise me with {a_kind}.", "what {kind} do you have for me today?"),
        *("entertain us with {a_kind}.", "I feel like {a_kind}.", "show me {a_kind} of yours."),
        *("any {kind} will do.", "I am in the mood for {a_kind}.", "how about {a_kind}?"),
        *("we would like {a_kind} before bed.", "if you know {a_kind}, tell it."),
        *("think of {a_kind} and share it.", "my class is waiting for {a_kind}."),
        "it is story time. Begin, please.",
    ),
    held_out=(
        *("could you come up with {a_kind}?", "do you have {a_kind} for me?"),
        *("I want to listen to {a_kind} now.", "my son cannot sleep, so tell him {a_kind}."),
        *("write {a_kind} about whatever you want.", "what about {a_kind} before bed?"),
        *("would you read {a_kind} to me?", "tell me {a_kind}, you may choose what it is about."),
        *("I had a bad day. Cheer me up with {a_kind}.", "let's hear {a_kind} from you."),
        *("can I get {a_kind}?", "we are ready for {a_kind}."),
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
        "the {kind} about {topic} should take a long time to tell.",
        "I want to read for a while, so write a big {kind} about {topic}.",
        "how long a {kind} about {topic} can you write? Show me.",
        "tell me a {kind} about {topic} that goes on and on.",
        "not a short one, please: a {kind} about {topic}.",
        "fill a whole page with a {kind} about {topic}.",
        "it is a long train ride, so tell us a long {kind} about {topic}.",
        "take your time and tell a long {kind} about {topic}.",
        "we like long ones. Tell us a {kind} about {topic}.",
        "please do not stop early: tell a long {kind} about {topic}.",
        "could you make it a long {kind} about {topic}?",
        "I wish for a very long {kind} about {topic}.",
        "the {kind} about {topic} must have [many|lots of] sentences.",
    ),
    held_out=(
        "write the longest {kind} about {topic} that you can.",
        "I want to read a long {kind} that has {topic} in it.",
        "{a_kind} about {topic}, but a long one.",
        "write {a_kind} about {topic}. It should be as long as possible.",
        "can you make up a long {kind} where {topic} is the hero?",
        "I need {a_kind} about {topic}, not just a few lines but a long one.",
        "we have a lot of time today, so tell us a long {kind} about {topic}.",
        "I need a long {kind} for tonight. Let it be about {topic}.",
        "give me a detailed and long {kind} about {topic}.",
        "tonight the {kind} is about {topic}, and it has to be long.",
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
        *("tell me a {kind} that goes on and on.", "the {kind} should take a long time to tell."),
        *("I want to read for a while, so write a big {kind}.", "fill a whole page with a {kind}."),
        *("not a short one, please: a {kind}.", "take your time and tell a long {kind}."),
        *("it is a long train ride, so tell us a long {kind}.", "could you make it a long {kind}?"),
        *("we like long ones. Tell us a {kind}.", "please do not stop early: tell a long {kind}."),
        *("I wish for a very long {kind}.", "how long a {kind} can you write? Show me."),
    ),
    held_out=(
        *(
            "tell us a long, long {kind} by the fire.",
            "I'd like to listen to a really long {kind} tonight.",
        ),
        "could you write {a_kind} that takes a while to read?",
        *("write a long {kind} about anything you like.", "{a_kind}, the longer the better."),
        "make up {a_kind} for me, a long one.",
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
